"""Accuracy of sequences of symbols, by position and as a whole."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seqattn import __version__
from seqattn.checking import Count
from seqattn.metrics.references import References, reference_lists
from seqattn.metrics.significance import Floats, SentenceCounts
from seqattn.metrics.text import Scorer, TextScore

_NAMES = ["symbol accuracy", "exact match"]


def measures(hypotheses: Sequence[str], references: References, every: int = 1) -> Floats:
    """Return symbol accuracy and exact match of N outputs, (N, 2), from 0 to 100.

    Symbol accuracy is the share of positions with the symbol of the first reference; positions
    beyond the end of either count as wrong.

    Args:
        every: score only each symbol whose position is a multiple of it: 2 for values after keys.
    """
    rows = []
    for text, (reference, *_) in zip(
        hypotheses, reference_lists(references, len(hypotheses)), strict=True
    ):
        output, gold = (words.split()[every - 1 :: every] for words in (text, reference))
        right = sum(token == gold_token for token, gold_token in zip(output, gold, strict=False))
        rows.append((right / max(1, len(output), len(gold)), output == gold))
    return 100 * np.array(rows, np.float64).reshape(-1, len(_NAMES))


@dataclass(frozen=True)
class SymbolScorer(Scorer):
    """Symbol accuracy and exact match, means over the outputs. Args: every: as `measures`."""

    logged: ClassVar[tuple[str, ...]] = ("symbol_accuracy", "exact_match")
    every: Count = 1

    def score(
        self,
        hypotheses: Sequence[str],
        references: References,
        sources: Sequence[str] | None = None,
    ) -> list[TextScore]:
        """Return both measures; see `Scorer.score`."""
        signature = f"mean:outputs|every:{self.every}|version:seqattn-{__version__}"
        means = measures(hypotheses, references, self.every).mean(0).tolist()
        return [TextScore(name, mean, signature) for name, mean in zip(_NAMES, means, strict=True)]

    def sentences(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> list[SentenceCounts]:
        """Return both measures; see `Scorer.sentences`."""
        return SentenceCounts.of_means(_NAMES, measures(hypotheses, references, self.every))
