"""Errors of words and of their symbols, as SIGMORPHON scores them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from seqattn import __version__
from seqattn.errors import UserError
from seqattn.metrics.references import References, reference_lists
from seqattn.metrics.significance import SentenceCounts
from seqattn.metrics.text import Scorer, TextScore


def edits(output: Sequence[str], gold: Sequence[str]) -> int:
    """Return the Levenshtein distance: fewest insertions, deletions and substitutions."""
    row = [*range(len(gold) + 1)]
    for number, symbol in enumerate(output, 1):
        diagonal, row[0] = row[0], number
        for column, gold_symbol in enumerate(gold, 1):
            substituted = diagonal + (symbol != gold_symbol)
            diagonal, row[column] = (
                row[column],
                min(substituted, row[column] + 1, row[column - 1] + 1),
            )
    return row[-1]


@dataclass(frozen=True)
class WordScorer(Scorer):
    """Word error rate, symbol error rate, edit distance and exact match.

    Word error rate is the share of outputs that differ from the target, with Wilson's interval.
    Symbol error rate is the sum of edit distances divided by the number of symbols of the targets,
    as in the evaluation of SIGMORPHON 2020 and 2021 (Gorman et al. 2020); edit distance is its mean
    over words, and exact match the share of right words, as in that of inflection. Of several
    references the nearest counts.

    Args:
        unit: symbols to compare: `characters`, or `symbols` that spaces separate, such as phones.
    """

    logged: ClassVar[tuple[str, ...]] = ("wer", "ser", "edit_distance", "exact_match")
    lower: ClassVar[tuple[str, ...]] = logged[:3]
    unit: Literal["characters", "symbols"] = "characters"

    def score(
        self,
        hypotheses: Sequence[str],
        references: References,
        sources: Sequence[str] | None = None,
    ) -> list[TextScore]:
        """Return all four; see `Scorer.score`."""
        if not hypotheses:
            raise UserError("there are no words to score")
        signature = f"unit:{self.unit}|words:{len(hypotheses)}|version:seqattn-{__version__}"
        scores = self.sentences(hypotheses, reference_lists(references, len(hypotheses)))
        within = wilson(scores[0].score, len(hypotheses)), None, None, None
        return [
            TextScore(score.name, score.score, signature, ends)
            for score, ends in zip(scores, within)
        ]

    def sentences(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> list[SentenceCounts]:
        """Return all four; see `Scorer.sentences`."""
        split: Any = str.split if self.unit == "symbols" else list
        nearest = [
            min((edits(split(text), split(reference)), len(split(reference))) for reference in gold)
            for text, gold in zip(hypotheses, references, strict=True)
        ]
        distance, length = np.array(nearest, np.float64).reshape(-1, 2).T
        means = np.stack([100.0 * (distance > 0), distance, 100.0 * (distance == 0)], 1)
        wer, mean, exact = SentenceCounts.of_means(["WER", "edit distance", "exact match"], means)
        ser = SentenceCounts("SER", np.stack([100 * distance, length], 1), wer.compute, lower=True)
        return [replace(wer, lower=True), ser, replace(mean, lower=True), exact]


def wilson(percent: float, count: int) -> tuple[float, float]:
    """Return the 95% interval of a percentage of `count` words (Wilson 1927)."""
    share, limit = percent / 100, 1.96
    spare = limit**2 / count
    half = limit * (share * (1 - share) / count + spare / (4 * count)) ** 0.5
    low, high = (100 * (share + spare / 2 + sign * half) / (1 + spare) for sign in (-1, 1))
    return low, high
