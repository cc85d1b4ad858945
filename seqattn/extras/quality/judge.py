"""Judgement of outputs: expected scores, labels, and words to check."""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from heapq import nsmallest
from math import inf
from typing import Any, ClassVar, Literal, NamedTuple

from seqattn.analysis.word_alignment import words_of
from seqattn.bundle.bundle import Bundle
from seqattn.bundle.text_arguments import TextOrTexts, paired
from seqattn.bundle.text_options import Note, OutputOf, TextOption
from seqattn.data.lines import in_one_line
from seqattn.extras.quality.calibration import Calibration
from seqattn.extras.quality.signals import Read, Reading, signals_of
from seqattn.generation.forced_decoding import Sides

LABELS = "unusable", "review", "usable"
"""Labels of outputs, worst first."""
Marked = tuple[str, bool]
"""A word, and True if it is to be checked."""


class Judgement(NamedTuple):
    """Judgement of an output.

    `expected` is None if it was not judged: the text is blank, longer than the model allows, or
    read in several windows. For a blank output of a text it is 0, without signals.
    """

    expected: float | None = None
    label: str | None = None
    signals: Mapping[str, float] = {}
    source: Sequence[Marked] = ()
    """Words of the source; marked ones are left out by the output."""
    output: Sequence[Marked] = ()
    """Words of the output; marked ones are not supported by the source."""

    @property
    def rank(self) -> tuple[int, float]:
        """Place from the worst to the best: by label, then expected score; not judged is last."""
        if self.expected is None or self.label is None:
            return len(LABELS), 0.0
        return LABELS.index(self.label), self.expected

    @property
    def marks(self) -> dict[str, list[tuple[int, str]]]:
        """Marked words with their places, from 0: "unsupported" and "left_out"."""
        sides = {"unsupported": self.output, "left_out": self.source}
        return {
            name: [(index, word) for index, (word, marked) in enumerate(side) if marked]
            for name, side in sides.items()
        }

    def document(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "expected": None if self.expected is None else round(self.expected, 2),
            "label": self.label,
            "signals": {name: round(value, 4) for name, value in self.signals.items()},
            **self.marks,
        }

    def tsv(self) -> str:
        """Return columns: expected score, label, unsupported and left out words as PLACE:WORD."""
        words = [" ".join(f"{n}:{word}" for n, word in some) for some in self.marks.values()]
        expected = "" if self.expected is None else f"{self.expected:.1f}"
        return "\t".join([expected, self.label or "", *words])


class Judge(TextOption):
    """Judge of outputs by the signals of a calibrated bundle, which counts its judgements.

    Args:
        settings: a `Quality`.
        bundle: its own model judges, whatever made the outputs.
        calibration: of the bundle.
    """

    has_columns: ClassVar[bool] = True

    def __init__(self, settings: Any, bundle: Bundle, calibration: Calibration) -> None:
        self.settings, self.bundle, self.calibration = settings, bundle, calibration
        self._counted: list[tuple[int, float, int, str]] = []
        self._labels, self._total = Counter[str](), 0.0

    def __call__(self, sources: TextOrTexts, outputs: TextOrTexts) -> list[Judgement]:
        """Judge texts and their outputs."""
        texts = paired(sources, outputs, ("source", "output"))
        pairs = pairs_of(self.bundle, *texts)
        readings = signals_of(self.bundle, [*pairs.values()], self.settings.words)
        return self.judged(*texts, pairs, readings)

    def judge_ids(self, source: Sequence[int], target: Sequence[int]) -> Judgement:
        """Judge the ids of a source and its output, each with its end."""
        if len(target) < 2:  # blank
            return Judgement(0.0, self.settings.label(0.0))
        pair = read(self.bundle, (source, target), (None, None))
        return self._of(pair, *signals_of(self.bundle, [pair], self.settings.words))

    def judged(
        self,
        sources: Sequence[str],
        outputs: Sequence[str],
        pairs: Mapping[int, Read],
        readings: Sequence[Reading],
    ) -> list[Judgement]:
        """Judge texts and outputs by the signals of those pairs that have some, by index."""
        results = [
            Judgement(0.0, self.settings.label(0.0))
            if source.strip() and not output.strip()
            else Judgement()
            for source, output in zip(sources, outputs, strict=True)
        ]
        for (number, pair), reading in zip(pairs.items(), readings, strict=True):
            results[number] = self._of(pair, reading)
        return results

    def _of(self, pair: Read, reading: Reading) -> Judgement:
        expected = self.calibration.expected(reading.signals)
        bounds = self.calibration.use, self.calibration.support
        sides = (pair.source, reading.use), (pair.output, reading.support)
        marked = [
            [(word, value < bound) for (word, _), value in zip(words, values)]
            for (words, values), bound in zip(sides, bounds, strict=True)
        ]
        uses = [value for value in reading.use if value < inf]
        left_out = sum(value < self.calibration.use for value in uses) / max(1, len(uses))
        label = self.settings.label(expected, left_out)
        return Judgement(expected, label, reading.signals, *marked)

    def of_lines(self, lines: Sequence[str], outputs: Sequence[str]) -> list[Judgement]:
        return self(lines, outputs)

    def joined(self, parts: Sequence[Judgement]) -> Judgement:
        """Return the judgement of a text of several lines: that of its worst line."""
        return min(parts, key=lambda judgement: judgement.rank, default=Judgement())

    def note(self, output: OutputOf) -> Note:
        judgement = self.joined([one.result for one in output.lines if not one.is_copy])
        if len(output.lines) > 1:
            sides = ([*_words(output, side)] for side in ("source", "output"))
            judgement = Judgement(*judgement[:3], *sides)
        if output.is_best:
            self.count(output.number, judgement, output.output)
        return Note({"quality": judgement.document()}, [judgement.tsv()])

    def count(self, line: int, result: Judgement, output: str) -> None:
        """Count the judgement of the best output for a line."""
        if result.expected is not None and result.label is not None:
            self._labels[result.label] += 1
            self._total += result.expected
            text = f"line {line:,}: {result.expected:.1f}, {result.label}: {in_one_line(output)}"
            self._counted = nsmallest(
                self.settings.worst, [*self._counted, (*result.rank, line, text)]
            )

    def say(self) -> None:
        """Print to standard error what was counted, if several, and the worst lines."""
        if (count := self._labels.total()) > 1:
            mean = self._total / count
            numbers = {label: self._labels[label] for label in reversed(LABELS)}
            shares = [f"{n:,} ({n / count:.0%}) {label}" for label, n in numbers.items()]
            first = f"expected {self.calibration.score} {mean:.1f}, {self.settings.label(mean)}: "
            lines = [first + ", ".join(shares), *(text for *_, text in self._counted)]
            print(*lines, sep="\n", file=sys.stderr)


def _words(output: OutputOf, side: Literal["source", "output"]) -> Iterator[Marked]:
    """Yield the words of all lines of a text; of those that were not judged, none is marked."""
    for one in output.lines:
        judged: Sequence[Marked] = () if one.is_copy else getattr(one.result, side)
        text = one.line if side == "source" else one.output
        yield from judged or ((word, False) for word in text.split())


def read(bundle: Bundle, ids: Sides, texts: Sequence[str | None]) -> Read:
    """Return a pair with its words. Args: texts: of both sides, which name unknown pieces."""
    source, output = map(words_of, bundle.pieces_of(ids, texts))
    return Read(ids, source, output)


def pairs_of(bundle: Bundle, sources: Sequence[str], outputs: Sequence[str]) -> dict[int, Read]:
    """Return the pairs that can be judged, by index."""
    fitting = bundle.fitting_pairs(sources, outputs)
    return {n: read(bundle, ids, (sources[n], outputs[n])) for n, ids in fitting.items()}
