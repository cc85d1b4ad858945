"""Texts or questions in, outputs or answers out, with a trained bundle."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seqattn.bundle.bundle import SpanBundle
from seqattn.checking import Count, checked
from seqattn.data.lines import (
    Question,
    in_one_line,
    read_questions,
    read_texts,
    typed_lines,
    write_lines,
)
from seqattn.data.reading import question_source
from seqattn.errors import UserError
from seqattn.generation import Hypothesis
from seqattn.generation.base import Search
from seqattn.generation.span_search import Answered, Answerer, SpanSearch
from seqattn.runs.bundle_run import BundleRun, hypotheses_for, outputs_for
from seqattn.runs.task_options import task_class


@checked
@dataclass(frozen=True, kw_only=True)
class Generation(BundleRun):
    """Outputs for the lines of a file, or for those typed.

    Args:
        bundle, device, trust: as `BundleRun`.
        generation: the search.
        input: a file of lines, or of JSON lines with texts or questions; None for standard input.
        output: a file; None for standard output.
        n_best: different outputs for each text, at most; None for one.
        scores: JSON lines with scores in place of text.

    Raises:
        UserError: where the search gives one hypothesis and several are asked for.
    """

    generation: Search | SpanSearch
    input: str | None = None
    output: str | None = None
    n_best: Count | None = None
    scores: bool = False

    def __post_init__(self) -> None:
        search: Any = self.generation
        if self.n_best is None or isinstance(search, SpanSearch):
            return
        if not hasattr(search, "n_best"):
            raise UserError("generation=greedy gives one hypothesis; n_best needs beam or sampling")
        # hypotheses that differ in tokens may read the same: the whole beam is asked for, and the
        # first n_best different texts are given
        whole = max(self.n_best, getattr(search, "beam_size", 0))
        object.__setattr__(self, "generation", replace(search, n_best=whole))

    def run(self) -> None:
        """Reads, generates and writes.

        Raises:
            UserError: where a file or the bundle cannot be used.
        """
        source = None if self.input is None else Path(self.input).expanduser()
        if source is not None and not source.is_file():
            raise UserError(f"input={source} is not a file")
        bundle = self.load(self.generation)
        asks = task_class(bundle.config).reads == "questions"
        inputs: Iterator[Any]
        if asks:
            inputs = read_questions(source)
        else:
            column = (bundle.config.get("data") or {}).get("source_column")
            inputs = typed_lines() if source is None else read_texts(source, column)
        # what is typed is answered line by line
        parts: Iterable[Sequence[Any]] = (
            ([one] for one in inputs) if source is None else [[*inputs]]
        )
        lines = self._answers if asks else self._outputs
        write_lines((line for part in parts for line in lines(bundle, part)), self.output)

    def _outputs(self, bundle: Any, texts: Sequence[str]) -> Iterator[str]:
        found = hypotheses_for(bundle, self.generation, texts)
        for text, hypotheses in zip(texts, found, strict=True):
            outputs = bundle.tokenizer.decode_target([hypothesis.ids for hypothesis in hypotheses])
            best: dict[str, Hypothesis] = {}
            for output, hypothesis in zip(outputs, hypotheses, strict=True):
                best.setdefault(output, hypothesis)
            for rank, output in enumerate(list(best)[: self.n_best or 1], start=1):
                row = {
                    "source": text,
                    "output": output,
                    "rank": rank,
                    "score": best[output].score,
                    "log_probability": best[output].log_probability,
                }
                yield json.dumps(row, ensure_ascii=False) if self.scores else in_one_line(output)

    def _answers(self, bundle: Any, asked: Sequence[Question]) -> Iterator[str]:
        questions, contexts = [one.question for one in asked], [one.context for one in asked]
        if isinstance(bundle, SpanBundle):
            search: Any = self.generation
            answerer = Answerer(bundle.model, bundle.encoder, search)
            rows = [_span_row(found) for found in answerer.answer(questions, contexts)]
        else:
            sources = list(map(question_source, questions, contexts))
            texts = outputs_for(bundle, self.generation, sources).texts
            rows = [{"answer": text} for text in texts]
        for one, row in zip(asked, rows, strict=True):
            name = {} if one.id is None else {"id": one.id}
            yield json.dumps({**name, "question": one.question, **row}, ensure_ascii=False)


def _span_row(found: Answered) -> dict[str, Any]:
    """The best answer and the others; "" with no characters where there is none."""
    each: list[dict[str, Any]] = [
        {"answer": a.text, "start": a.start, "end": a.end, "probability": a.probability}
        for a in found.answers
    ]
    none = {"answer": "", "start": None, "end": None, "probability": None}
    others = {"others": each[1:]} if len(each) > 1 else {}
    return {**(each[0] if each else none), "no_answer": found.no_answer, **others}
