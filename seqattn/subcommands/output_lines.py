"""Outputs of texts as lines: text, columns or JSON."""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, islice
from typing import Any, ClassVar, Literal, NamedTuple, cast

from seqattn.analysis.word_alignment import WordAlignment, pharaoh
from seqattn.bundle.bundle import Bundle
from seqattn.bundle.text_options import (
    Note,
    OutputOf,
    SegmentOutput,
    Segments,
    TextOption,
    Whole,
    all_texts,
    checked_by,
    generator_with,
    segment_output,
    split_with,
    splitter_of,
)
from seqattn.data.lines import in_one_line
from seqattn.data.source_ids import Headed
from seqattn.data.text_lines import TextLines, say_copied
from seqattn.generation import Generator, Hypothesis
from seqattn.generation.base import Progress
from seqattn.generation.generator import line_indices
from seqattn.metrics.scripts import unsplit
from seqattn.screen import say
from seqattn.subcommands.reranking import Reranker

Format = Literal["text", "tsv", "jsonl"]
Rows = Sequence[tuple[int, Any]]
"""Inputs with their line numbers."""
_Line = tuple[str, Hypothesis, tuple[Any, ...]]
"""The output of a line, its hypothesis, and what each option says of it."""
_EXAMPLES, _WIDEST = 3, 40  # unknown pieces, and their characters


@dataclass
class Notices:
    """What standard error says of all inputs and outputs at the end.

    Args:
        unknown: pieces of inputs that the vocabulary lacks.
        copied: number of lines and sentences without a letter.
        unsplit: True if alignments or quality count texts as single words.
        joined: numbers of texts whose output had line breaks, which became spaces.
    """

    unknown: Counter[str] = field(default_factory=Counter)
    copied: int = 0
    unsplit: bool = False
    joined: list[int] = field(default_factory=list)

    def say(self) -> None:
        """Print them."""
        say_copied(self.copied)
        if self.unsplit:
            say("texts without spaces between words count as one word each")
        if number := self.unknown.total():
            some = ", ".join(_visible(piece) for piece, _ in self.unknown.most_common(_EXAMPLES))
            print(
                f"the vocabulary lacks {number:,} piece{'s' * (number > 1)} of the input, such as "
                f"{some}; the model reads each as unknown",
                file=sys.stderr,
            )
        if self.joined:
            outputs = f"{len(self.joined):,} output{'s' * (len(self.joined) > 1)}"
            became = f"(first: {self.joined[0]:,}) became one line"
            print(f"{outputs} {became}; format=jsonl keeps line breaks", file=sys.stderr)


@dataclass(frozen=True)
class Alignments(TextOption):
    """Word alignments in Pharaoh format. Args: bundle: aligns."""

    bundle: Bundle
    has_columns: ClassVar[bool] = True

    def of_lines(self, lines: Sequence[str], outputs: Sequence[str]) -> Sequence[Any]:
        return self.bundle.align(lines, outputs)

    def note(self, output: OutputOf) -> Note:
        links = pharaoh(
            WordAlignment.of_copy(one.line) if one.is_copy else one.result for one in output.lines
        )
        return Note({"alignment": links}, [links])


class _Output(NamedTuple):
    """An output of a text.

    Args:
        number, raw, document: the text's number in the input, itself, and its segments.
        rank: from 1, the best.
        segments: output of each segment, with what each option says of its lines.
        hypotheses: of the lines.
    """

    number: int
    raw: str
    document: Segments
    rank: int
    segments: list[SegmentOutput]
    hypotheses: list[Hypothesis]


@dataclass(frozen=True)
class OutputLines:
    """Generator of the lines of outputs.

    Args:
        bundle: the model, and `generator` its search.
        reranker: ranks hypotheses anew; None not to.
        options: what the request has besides texts, by key.
        notices: counts inputs.
        format: of lines.
        n_best: maximum number of distinct outputs for each text.
        keeps_breaks: True if outputs of several lines are written so; `format` "jsonl" always does.
        prefix: what every output begins with; None for nothing.
        has_prefixes: True if each text has its own `beside` it.
        joins_lines: True if texts between blank ones are the lines of a document.
    """

    bundle: Bundle
    generator: Generator
    reranker: Reranker | None
    options: Mapping[str, TextOption]
    notices: Notices
    format: Format = "text"
    n_best: int = 1
    keeps_breaks: bool = False
    prefix: str | None = None
    has_prefixes: bool = False
    joins_lines: bool = False

    def __call__(self, first: int, rows: Rows, progress: Progress) -> Iterator[str]:
        """Yield the lines of texts. Args: first: index of the first one in the input."""
        splitter, texts = splitter_of(self.options, []), [text for _, text in rows]
        documents = splitter.split(texts) if splitter else [Whole([text]) for text in texts]
        beside = ["prefix"] * (self.prefix is not None) + ["prefix_column"] * self.has_prefixes
        split = split_with(self.options.values(), beside)
        read: TextLines = self.bundle.lines(all_texts(documents), split=split)
        unknown = self.bundle.tokenizer.unknown([*map(in_one_line, read.lines)])
        self.notices.unknown.update(unknown)
        self.notices.copied += read.copied
        row_of = [row for row, one in enumerate(documents) for _ in one.texts]
        indices = line_indices(first + row_of[segment] for segment in read.texts)

        def of_rows(done: int, total: int | None, tokens: int = 0) -> None:
            progress(done * len(rows) // (total or 1), len(rows), tokens)

        prefix = self.has_prefixes and [cast(Headed, text).beside or "" for text in texts]
        constraints = self.bundle.constraints(
            read, prefix or self.prefix, self.options.values(), [number for number, _ in rows]
        )
        starts = [not self.joins_lines or not text.strip() for text in texts]
        document_of = [*accumulate(starts)]
        generator = generator_with(
            self.options.values(), self.bundle, self.generator, read,
            [document_of[row] for row in row_of],
        )  # fmt: skip
        lists = generator.generate_windows(
            self.bundle.encode(read.lines), indices, of_rows, constraints
        )
        lists = checked_by(
            self.options.values(), self.bundle, self.generator, read.lines, indices, lists,
            bool(constraints),
        )  # fmt: skip
        if self.reranker is not None:
            self.reranker.known.clear()  # those of other windows
            lists = self.reranker.rank(read.lines, lists)
        best = [_different(self.bundle, hypotheses)[: self.n_best] for hypotheses in lists]
        found = [*_outputs(rows, documents, read, self._with_options(read, best))]
        restored: Sequence[Any] = [None] * len(found)
        if splitter:
            align = replace(self.bundle, words_by=splitter.words_by).align
            restored = splitter.restore([(one.document, one.segments) for one in found], align)
        for one, marked in zip(found, restored, strict=True):
            yield self._line(one, marked)

    def _with_options(self, read: TextLines, best: list[Any]) -> list[list[_Line]]:
        """Add what each option says of them to the outputs of lines."""
        lines = [line for line, some in zip(read.lines, best, strict=True) for _ in some]
        outputs = [output for some in best for output, _ in some]
        each = [option.of_lines(lines, outputs) for option in self.options.values()]
        if any(option.has_columns for option in self.options.values()):
            self.notices.unsplit |= any(map(unsplit, (lines, outputs)))
        results = iter(zip(*each, strict=True) if each else ((),) * len(lines))
        return [[(*one, next(results)) for one in some] for some in best]

    def _line(self, output: _Output, restored: Any) -> str:
        """Return the line of an output, after counting it. Args: restored: with markup."""
        generated = "\n".join(one.output for one in output.segments)
        lines = [line for one in output.segments for line in one.lines]
        notes = [
            option.note(
                OutputOf(
                    output.number,
                    "\n".join(output.document.texts),
                    generated,
                    [one if one.is_copy else one._replace(result=one.result[at]) for one in lines],
                    output.raw,
                    restored,
                    output.rank == 1,
                )
            )
            for at, option in enumerate(self.options.values())
        ]
        text = generated if restored is None else restored.text
        score = sum((one.score for one in output.hypotheses), 0.0)
        if self.format == "jsonl":
            total = sum((one.log_probability for one in output.hypotheses), 0.0)
            row = {"line": output.number, "source": output.raw, "output": text}
            row |= {"rank": output.rank, "score": score, "log_probability": total}
            return json.dumps(
                row | dict(chain(*(note.keys.items() for note in notes))), ensure_ascii=False
            )
        if self.format == "tsv" or not self.keeps_breaks:
            line = in_one_line(text)
            if line != text and output.rank == 1:
                self.notices.joined.append(output.number)
            text = line
        if self.format == "text":
            return text
        columns = chain(*(note.columns for note in notes))
        first = f"{output.number}\t{output.rank}\t{score:.4f}"
        return "\t".join([first, text.replace("\t", " "), *columns])


def _outputs(
    rows: Rows, documents: Sequence[Segments], read: TextLines, best: Iterable[list[_Line]]
) -> Iterator[_Output]:
    """Yield the outputs of each text, best first, from those of its lines.

    A line that has fewer than others repeats its last one.
    """
    segments = enumerate(read.groups(best))
    for (number, raw), document in zip(rows, documents, strict=True):
        own = [*islice(segments, len(document.texts))]
        ranks = max((len(line) for _, lines in own for line in lines), default=1)
        for rank in range(ranks):
            outputs, hypotheses = list[SegmentOutput](), list[Hypothesis]()
            for segment, lines in own:
                each = [line[min(rank, len(line) - 1)] for line in lines]
                hypotheses += [hypothesis for _, hypothesis, _ in each]
                results = [result for *_, result in each]
                outputs.append(segment_output(read, segment, [text for text, *_ in each], results))
            yield _Output(number, raw, document, rank + 1, outputs, hypotheses)


def _different(bundle: Bundle, hypotheses: Sequence[Hypothesis]) -> list[tuple[str, Hypothesis]]:
    """Return the best hypothesis for each distinct text, and the texts."""
    outputs = bundle.tokenizer.decode_target([hypothesis.ids for hypothesis in hypotheses])
    best: dict[str, Hypothesis] = {}
    for output, hypothesis in zip(outputs, hypotheses, strict=True):
        best.setdefault(output, hypothesis)
    return list(best.items())


def _visible(piece: str) -> str:
    """Return the start of a piece, with codes such as U+00A0 for what cannot be seen."""
    return "".join(one if one.isprintable() else f"U+{ord(one):04X}" for one in piece[:_WIDEST])
