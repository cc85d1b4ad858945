"""Texts or questions in, outputs or answers out, with a trained bundle."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from os.path import realpath
from pathlib import Path
from typing import Any, Literal

from seqattn.bundle.bundle import SpanBundle, TextBundle
from seqattn.bundle.outputs import outputs_for
from seqattn.checking import Count
from seqattn.data.lines import in_one_line, read_questions, read_texts, write_lines
from seqattn.data.reading import question_source
from seqattn.data.squad_format import Asked
from seqattn.data.text_lines import TextLines
from seqattn.errors import UserError
from seqattn.generation import Generator, Hypothesis
from seqattn.generation.base import Progress, Search
from seqattn.generation.span_search import Answered, SpanSearch
from seqattn.generation.windows import generate_from_windows
from seqattn.storage import user_path
from seqattn.training.task_options import task_class
from seqattn.verbs.bundle_run import BundleRun
from seqattn.verbs.reranking import Reranker, Reranking


@dataclass(frozen=True, kw_only=True)
class Generation(BundleRun):
    """Outputs for a text, for the lines of a file, or for those typed.

    Args:
        bundle, device, trust: as `BundleRun`.
        generation: the search.
        text: the one text to read, in place of a file.
        question, context: the one question to answer, of a bundle that answers questions.
        input: a file of lines, or of JSON lines with texts or questions; None for standard input.
        output: a file; None for standard output.
        n_best: different outputs for each text, at most; None for one.
        format: of the lines that come out: text, the output alone; tsv, the number of the line
            that it answers, its rank, its score and the output; jsonl, all this by name. None for
            tsv where n_best is above 1, for jsonl of answers to questions, and else for text.
        rerank: how hypotheses are ranked anew by another model.

    Raises:
        UserError: for several inputs, or where the search gives one hypothesis and several are
            asked for.
    """

    generation: Search | SpanSearch
    text: str | None = None
    question: str | None = None
    context: str | None = None
    input: str | None = None
    output: str | None = None
    n_best: Count | None = None
    format: Literal["text", "tsv", "jsonl"] | None = None
    rerank: Reranking = field(default_factory=Reranking)

    def __post_init__(self) -> None:
        if (self.question is None) != (self.context is None):
            raise UserError(
                'a question needs its context: question="Who runs?" context="A dog runs."'
            )
        if sum(one is not None for one in (self.text, self.question, self.input)) > 1:
            raise UserError("text, question and input are given together; leave all but one out")
        search: Any = self.generation
        if self.n_best is None:
            return
        if isinstance(search, SpanSearch):
            whole: dict[str, int] = {"answers": self.n_best}
        elif not hasattr(search, "n_best"):
            if self.n_best == 1:
                return
            raise UserError(
                "this search gives one hypothesis; n_best needs generation=beam or sampling"
            )
        else:
            # hypotheses that differ in tokens may read the same: the whole beam is asked for, and
            # the first n_best different texts are given
            whole = {"n_best": max(self.n_best, getattr(search, "beam_size", 0))}
        object.__setattr__(self, "generation", replace(search, **whole))

    def run(self) -> None:
        """Reads, generates and writes.

        Raises:
            UserError: where a file or the bundle cannot be used.
        """
        source = None if self.input is None else user_path(self.input)
        if source is not None and (source.is_dir() or not source.exists()):
            raise UserError(f"input={source} is not a file")
        into = user_path(self.output or "")
        if source is not None and source.is_file() and realpath(source) == realpath(into):
            raise UserError(f"output={into} is what is read; name another file")
        bundle: Any = self.load(self.generation)
        asks = task_class(bundle.config).reads == "questions"
        self._check_asked(asks)
        parts: Any = self._questions(source) if asks else self._texts(bundle, source)
        bar: Any = nullcontext(None)
        if source is not None:
            from seqattn.screen import progress  # one sentence waits for no Rich

            bar = progress("generating", "texts")
        search: Any = nullcontext()
        if not asks:
            search = bundle.generator(self.rerank.search(self.generation)).open()
        reranker = self.rerank.over(bundle.tokenizer, self.device, self.trust)

        def lines() -> Iterator[str]:
            with search as generator:
                texts = partial(self._outputs, generator, reranker)
                work: Any = texts if generator else self._answers
                for part in parts:
                    with bar as tell:
                        found = [*work(bundle, part, tell)]
                    yield from found

        write_lines(lines(), self.output)

    def _check_asked(self, asks: bool) -> None:
        """Refuses what the bundle has no use for."""
        if asks and self.text is not None:
            raise UserError("this bundle takes question=... context=..., not a text")
        if not asks and self.question is not None:
            raise UserError("this bundle takes text=..., not a question")
        if asks and self.rerank.bundle:
            raise UserError("this bundle answers questions; rerank takes one that reads texts")
        if asks and self.format not in (None, "jsonl"):
            raise UserError(f"answers are JSON lines; leave format={self.format} out")

    def _texts(self, bundle: Any, source: Path | None) -> Iterator[list[tuple[int, str]]]:
        if self.text is not None:
            return iter([[(1, self.text)]])
        _say_how("a text", source)
        return read_texts(source, bundle.config.get("data"))

    def _questions(self, source: Path | None) -> Iterator[list[tuple[int, Asked]]]:
        if self.question is not None:
            return iter([[(1, Asked(self.question, self.context or "", None))]])
        _say_how('{"question": "...", "context": "..."}', source)
        return read_questions(source)

    def _outputs(
        self,
        generator: Generator,
        reranker: Reranker | None,
        bundle: Any,
        part: Sequence[tuple[int, str]],
        progress: Progress | None,
    ) -> Iterator[str]:
        texts, first = [text for _, text in part], part[0][0] - 1 if part else 0
        read: TextLines = bundle.lines(texts)
        places = [first + number for number in read.texts]
        found = generate_from_windows(generator, bundle.encode(read.lines), places, progress)
        if reranker is not None:
            found = reranker.rank(read.lines, found)
        best = [_different(bundle, hypotheses)[: self.n_best or 1] for hypotheses in found]
        for place, lines in enumerate(read.groups(best)):
            number, text = part[place]
            for rank in range(max(map(len, lines))):
                each = [ranked[min(rank, len(ranked) - 1)] for ranked in lines]
                output = read.join_text(place, [output for output, _ in each])
                yield self._line(number, text, rank + 1, output, [one for _, one in each])

    def _line(
        self, number: int, text: str, rank: int, output: str, found: Sequence[Hypothesis]
    ) -> str:
        kind = self.format or ("tsv" if (self.n_best or 1) > 1 else "text")
        score = sum(one.score for one in found)
        if kind == "jsonl":
            total = sum(one.log_probability for one in found)
            scores = {"score": score, "log_probability": total}
            row = {"line": number, "source": text, "output": output, "rank": rank, **scores}
            return json.dumps(row, ensure_ascii=False)
        if self.text is None or len(found) == 1:  # else the lines of the one text
            output = in_one_line(output)
        if kind == "text":
            return output
        return f"{number}\t{rank}\t{score:.4f}\t{output.replace(chr(9), ' ')}"

    def _answers(
        self, bundle: Any, part: Sequence[tuple[int, Asked]], progress: Progress | None
    ) -> Iterator[str]:
        asked = [question for _, question in part]
        questions, contexts = [one.question for one in asked], [one.context for one in asked]
        if isinstance(bundle, SpanBundle):
            answerer = bundle.answerer(self.generation)
            rows = [_span_row(found) for found in answerer.answer(questions, contexts, progress)]
        else:
            if (self.n_best or 1) > 1:
                raise UserError("this bundle writes one answer to a question; leave n_best out")
            sources = list(map(question_source, questions, contexts))
            texts = outputs_for(bundle, self.generation, sources, progress).texts
            rows = [{"answer": text} for text in texts]
        for one, row in zip(asked, rows, strict=True):
            name = {} if one.id is None else {"id": one.id}
            yield json.dumps({**name, "question": one.question, **row}, ensure_ascii=False)


def _different(
    bundle: TextBundle, hypotheses: Sequence[Hypothesis]
) -> list[tuple[str, Hypothesis]]:
    """Hypotheses of different texts, each with its text; the best of several with one text."""
    outputs = bundle.tokenizer.decode_target([hypothesis.ids for hypothesis in hypotheses])
    best: dict[str, Hypothesis] = {}
    for output, hypothesis in zip(outputs, hypotheses, strict=True):
        best.setdefault(output, hypothesis)
    return list(best.items())


def _say_how(expected: str, source: Path | None) -> None:
    """Tells a person at a terminal what to do."""
    if source is None and sys.stdin is not None and sys.stdin.isatty():
        print(f"type {expected} and Enter; Ctrl-D ends", file=sys.stderr)


def _span_row(found: Answered) -> dict[str, Any]:
    """The best answer and the others; "" with no characters where there is none."""
    each: list[dict[str, Any]] = [
        {"answer": a.text, "start": a.start, "end": a.end, "probability": a.probability}
        for a in found.answers
    ]
    none = {"answer": "", "start": None, "end": None, "probability": None}
    others = {"others": each[1:]} if len(each) > 1 else {}
    return {**(each[0] if each else none), "no_answer": found.no_answer, **others}
