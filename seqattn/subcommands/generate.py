"""Generation of outputs for texts."""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from os.path import realpath
from pathlib import Path
from typing import Any, Literal

from seqattn.analysis.forced_alignment import cross_attentions
from seqattn.analysis.word_alignment import pharaoh
from seqattn.bundle.bundle import Bundle
from seqattn.checking import Count
from seqattn.data.lines import in_one_line, write_lines
from seqattn.data.text_lines import TextLines
from seqattn.errors import UserError
from seqattn.generation import Generator, Hypothesis
from seqattn.generation.base import AnySearch, Progress
from seqattn.generation.windows import generate_from_windows
from seqattn.storage import user_path
from seqattn.subcommands.bundle_run import BundleRun, check_read
from seqattn.subcommands.reranking import Reranker, Reranking

_SHOWN = 3  # unknown pieces


@dataclass(frozen=True, kw_only=True)
class Generation(BundleRun):
    """Generate outputs for a text, for the lines of a file, or for typed lines.

    Args:
        bundle, device, trust: as `BundleRun`.
        generation: the search.
        text: a single text, in place of a file.
        question, context: a single input, for a bundle that reads these in place of a text.
        input: a file of lines, or of JSON lines; None for standard input.
        output: a file; None for standard output.
        n_best: maximum number of distinct outputs for each text; None for one.
        alignments: True to write word alignments in Pharaoh format, too: the last column of tsv, or
            the key "alignment" of jsonl.
        format: output format: text, the output only; tsv, number of the input line, rank, score
            and output; jsonl, the same by name. None for jsonl if the inputs are not texts, for tsv
            if n_best is above 1 or alignments are written, and else for text.
        rerank: settings of reranking by another model.
        markup: markup of the texts, as in `Bundle.generate`; None for plain text.

    Raises:
        UserError: for several inputs, or n_best above the number of hypotheses of the search.
    """

    generation: AnySearch
    text: str | None = None
    question: str | None = None
    context: str | None = None
    input: str | None = None
    output: str | None = None
    n_best: Count | None = None
    alignments: bool = False
    format: Literal["text", "tsv", "jsonl"] | None = None
    rerank: Reranking = field(default_factory=Reranking)
    markup: Any = None

    def __post_init__(self) -> None:
        if sum(one is not None for one in (self.text, self.question, self.input)) > 1:
            raise UserError("text, question and input are mutually exclusive")
        if self.alignments and self.format == "text":
            raise UserError("format=text has no alignments; remove it, or add format=jsonl")
        if self.markup is not None and (self.n_best or self.alignments or self.format):
            raise UserError("markup writes one text each; remove n_best, alignments and format")
        if self.n_best is not None:
            object.__setattr__(self, "generation", self.generation.giving(self.n_best))

    def run(self) -> None:
        """Read, generate and write.

        Raises:
            UserError: if a file or the bundle cannot be used.
        """
        source = None if self.input is None else user_path(self.input)
        into = user_path(self.output or "")
        if source is not None and source.is_file() and realpath(source) == realpath(into):
            raise UserError(f"output={into} is also the input; choose another file")
        bundle: Any = self.load(self.generation)
        generates = self._check_inputs(bundle)
        parts = self._parts(bundle, source)
        bar: Any = nullcontext(None)
        if source is not None:
            from seqattn.screen import progress  # importing Rich would delay a single sentence

            bar = progress("generating", "texts")
        search: Any = nullcontext()
        if generates:
            search = bundle.generator(self.rerank.search(self.generation)).open()
        reranker = self.rerank.over(bundle.tokenizer, self.device, self.trust)
        unknown = Counter[str]()

        def lines() -> Iterator[str]:
            with search as generator:
                texts = partial(self._marked if self.markup else self._outputs, generator, reranker)
                work: Any = texts if generator else self._answers
                for part in parts:
                    with bar as tell:
                        results = [*work(bundle, part, tell)]
                    yield from results
                    if self.markup:  # its tags are no text
                        continue
                    read = [(one,) if generates else one[: len(bundle.reads)] for _, one in part]
                    unknown.update(bundle.tokenizer.unknown([*map(in_one_line, chain(*read))]))
            _say_unknown(unknown)

        write_lines(lines(), self.output)

    def _check_inputs(self, bundle: Any) -> bool:
        """Return True if the bundle reads texts; raise UserError for inputs of other bundles."""
        keys = {"text": self.text, "question": self.question, "context": self.context}
        check_read(bundle, **keys)
        generates = "text" in bundle.reads
        if generates and (self.alignments or self.markup):
            cross_attentions(bundle.model)
        if not generates and self.rerank.bundle:
            raise UserError("rerank needs a bundle that reads texts; remove rerank")
        if not generates and (self.alignments or self.markup):
            raise UserError("answers have neither alignments nor markup; remove them")
        if not generates and self.format not in (None, "jsonl"):
            raise UserError(f"answers are written as JSON lines; remove format={self.format}")
        return generates

    def _parts(self, bundle: Bundle, source: Path | None) -> Iterator[list[tuple[int, Any]]]:
        values = [getattr(self, key) for key in bundle.reads]
        if None not in values:
            return iter([[(1, bundle.as_input(*values))]])
        _say_how(bundle.form, source)
        return bundle.read_inputs(source)

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
        lists = generate_from_windows(generator, bundle.encode(read.lines), places, progress)
        if reranker is not None:
            lists = reranker.rank(read.lines, lists)
        best: Any = [_different(bundle, hypotheses)[: self.n_best or 1] for hypotheses in lists]
        if self.alignments:
            sources = [line for line, some in zip(read.lines, best) for _ in some]
            words = iter(bundle.align(sources, [output for some in best for output, _ in some]))
            best = [[(*one, next(words)) for one in some] for some in best]
        for place, lines in enumerate(read.groups(best)):
            number, text = part[place]
            for rank in range(max(map(len, lines))):
                each = (ranked[min(rank, len(ranked) - 1)] for ranked in lines)
                outputs, hypotheses, *links = zip(*each, strict=True)
                output = read.join_text(place, outputs)
                yield self._line(number, text, rank + 1, output, hypotheses, *map(pharaoh, links))

    def _marked(
        self,
        generator: Generator,
        reranker: Reranker | None,
        bundle: Any,
        part: Sequence[tuple[int, str]],
        progress: Progress | None,
    ) -> Iterator[str]:
        def generate(texts: list[str]) -> list[str]:
            rows = [*enumerate(texts, 1)]
            return [*self._outputs(generator, reranker, bundle, rows, progress)]

        texts = self.markup.generate([text for _, text in part], generate, bundle.align)
        yield from texts if self.text is not None else map(in_one_line, texts)

    def _line(
        self,
        number: int,
        text: str,
        rank: int,
        output: str,
        hypotheses: Sequence[Hypothesis],
        alignment: str | None = None,
    ) -> str:
        several = (self.n_best or 1) > 1 or self.alignments
        kind = self.format or ("tsv" if several else "text")
        score = sum(one.score for one in hypotheses)
        if kind == "jsonl":
            total = sum(one.log_probability for one in hypotheses)
            scores = {"score": score, "log_probability": total}
            row = {"line": number, "source": text, "output": output, "rank": rank, **scores}
            if alignment is not None:
                row["alignment"] = alignment
            return json.dumps(row, ensure_ascii=False)
        if self.text is None or len(hypotheses) == 1:  # else a single text of several lines
            output = in_one_line(output)
        if kind == "text":
            return output
        last = "" if alignment is None else f"\t{alignment}"
        return f"{number}\t{rank}\t{score:.4f}\t{output.replace(chr(9), ' ')}{last}"

    def _answers(
        self, bundle: Any, part: Sequence[tuple[int, Any]], progress: Progress | None
    ) -> Iterator[str]:
        inputs = [one for _, one in part]
        for row in bundle.answer_rows(inputs, self.generation, self.n_best or 1, progress):
            yield json.dumps(row, ensure_ascii=False)


def _different(bundle: Bundle, hypotheses: Sequence[Hypothesis]) -> list[tuple[str, Hypothesis]]:
    """Return the best hypothesis for each distinct text, and the texts."""
    outputs = bundle.tokenizer.decode_target([hypothesis.ids for hypothesis in hypotheses])
    best: dict[str, Hypothesis] = {}
    for output, hypothesis in zip(outputs, hypotheses, strict=True):
        best.setdefault(output, hypothesis)
    return list(best.items())


def _say_unknown(unknown: Counter[str]) -> None:
    """Print to standard error how many pieces the vocabulary lacks."""
    if number := unknown.total():
        some = ", ".join(piece for piece, _ in unknown.most_common(_SHOWN))
        print(
            f"the vocabulary lacks {number:,} piece{'s' * (number > 1)} of the input, such as "
            f"{some}; the model reads each as unknown",
            file=sys.stderr,
        )


def _say_how(expected: str, source: Path | None) -> None:
    """Print how to enter inputs if standard input is a terminal."""
    if source is None and sys.stdin is not None and sys.stdin.isatty():
        print(f"type {expected} and press Enter; Ctrl-D to quit", file=sys.stderr)
