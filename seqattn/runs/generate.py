"""Texts or questions in, outputs or answers out, with a trained bundle."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from seqattn.bundle.bundle import SpanBundle, TextBundle, load_bundle
from seqattn.bundle.files import read_config
from seqattn.checking import Count, checked
from seqattn.data.reading import question_source
from seqattn.errors import UserError
from seqattn.generation import Hypothesis
from seqattn.generation.base import generate_from_windows
from seqattn.generation.span_search import Answered, Answerer, SpanSearch
from seqattn.ops.memory import keep_freed_memory
from seqattn.runs.lines import decoded, in_one_line, read_texts, rows_of, typed_lines, write_lines
from seqattn.runs.search import BatchedSearch, check_search
from seqattn.runs.task_options import task_class

_EXPECTED = 'expected {"question": "...", "context": "..."}'


class Question(NamedTuple):
    """A question on a context, and its name where it has one."""

    question: str
    context: str
    id: str | None


@checked
@dataclass(frozen=True)
class Generation:
    """Outputs for the lines of a file, or for those typed.

    Args:
        bundle: the path of a trained model.
        generation: the search.
        input: a file of lines, or of JSON lines with texts or questions; None for standard input.
        output: a file; None for standard output.
        n_best: different outputs for each text, at most; None for one.
        scores: JSON lines with scores in place of text.
        device: where the model runs.
        trust: packages, beside this one, that parts of the bundle may come from.

    Raises:
        UserError: where the search gives one hypothesis and several are asked for.
    """

    bundle: str
    generation: BatchedSearch | SpanSearch
    input: str | None = None
    output: str | None = None
    n_best: Count | None = None
    scores: bool = False
    device: str = "cpu"
    trust: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.n_best is None or isinstance(self.generation, SpanSearch):
            return
        search: Any = self.generation.search
        if not hasattr(search, "n_best"):
            raise UserError("generation=greedy gives one hypothesis; n_best needs beam or sampling")
        # hypotheses that differ in tokens may read the same: the whole beam is asked for, and the
        # first n_best different texts are given
        whole = max(self.n_best, getattr(search, "beam_size", 0))
        found = replace(self.generation, search=replace(search, n_best=whole))
        object.__setattr__(self, "generation", found)

    def run(self) -> None:
        """Reads, generates and writes.

        Raises:
            UserError: where a file or the bundle cannot be used.
        """
        config = read_config(Path(self.bundle).expanduser(), trust=self.trust)
        task = task_class(config)
        check_search(task.output, self.generation)
        answers = task.reads == "questions"
        source = None if self.input is None else Path(self.input).expanduser()
        if source is not None and not source.is_file():
            raise UserError(f"input={source} is not a file")
        whole: list[Any] | None = None
        if source is not None:  # read before the model is loaded
            column = (config.get("data") or {}).get("source_column")
            whole = list(_questions(source)) if answers else read_texts(source, column)
        keep_freed_memory()
        bundle = load_bundle(self.bundle, self.device, trust=self.trust)
        lines = partial(self._lines, bundle, answers)
        if whole is not None:
            write_lines(lines(whole), self.output)
            return
        typed = typed_lines()
        each: Iterable[Any] = _parsed(typed, "standard input") if answers else typed
        write_lines((line for one in each for line in lines([one])), self.output)

    def _lines(
        self, bundle: TextBundle | SpanBundle, answers: bool, inputs: Sequence[Any]
    ) -> Iterator[str]:
        if answers:
            return self._answers(bundle, inputs)
        assert isinstance(bundle, TextBundle)
        return self._outputs(bundle, inputs)

    def _outputs(self, bundle: TextBundle, texts: Sequence[str]) -> Iterator[str]:
        found = _hypotheses(bundle, self.generation, texts)
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

    def _answers(self, bundle: TextBundle | SpanBundle, asked: Sequence[Question]) -> Iterator[str]:
        questions, contexts = [one.question for one in asked], [one.context for one in asked]
        rows: Iterable[dict[str, Any]]
        if isinstance(bundle, SpanBundle):
            assert isinstance(self.generation, SpanSearch)
            answerer = Answerer(bundle.model, bundle.encoder, self.generation)
            rows = map(_span_row, answerer.answer(questions, contexts))
        else:
            sources = list(map(question_source, questions, contexts))
            found = _hypotheses(bundle, self.generation, sources)
            texts = bundle.tokenizer.decode_target([best[0].ids for best in found])
            rows = ({"answer": text} for text in texts)
        for one, row in zip(asked, rows, strict=True):
            name = {} if one.id is None else {"id": one.id}
            line = {**name, "question": one.question, **row}
            yield json.dumps(line, ensure_ascii=False)


def _hypotheses(
    bundle: TextBundle, generation: BatchedSearch | SpanSearch, texts: Sequence[str]
) -> list[list[Hypothesis]]:
    assert isinstance(generation, BatchedSearch)
    return generate_from_windows(generation.over(bundle.model), bundle.encode(texts))


def _span_row(found: Answered) -> dict[str, Any]:
    """The best answer and the others; "" with no characters where there is none."""
    each: list[dict[str, Any]] = [
        {"answer": a.text, "start": a.start, "end": a.end, "probability": a.probability}
        for a in found.answers
    ]
    none = {"answer": "", "start": None, "end": None, "probability": None}
    others = {"others": each[1:]} if len(each) > 1 else {}
    return {**(each[0] if each else none), "no_answer": found.no_answer, **others}


def _questions(path: Path) -> Iterator[Question]:
    with path.open("rb") as file:
        yield from _parsed(decoded(file, str(path)), str(path))


def _parsed(lines: Iterable[str], name: str) -> Iterator[Question]:
    """Questions from lines of JSON; blank lines are passed over."""
    for row, where in rows_of(lines, name, _EXPECTED):
        question, context = row.get("question"), row.get("context")
        if not isinstance(question, str) or not isinstance(context, str):
            raise UserError(f"{where} lacks a question or a context; {_EXPECTED}")
        if not question.strip():
            raise UserError(f"{where} has an empty question; {_EXPECTED}")
        yield Question(question, context, None if row.get("id") is None else str(row["id"]))
