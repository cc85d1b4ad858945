"""A scorer of errors, as somebody's own package has one: the lower, the better."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from sacrebleu.metrics.ter import TER

from seqattn.metrics.means import CorpusScores
from seqattn.metrics.references import References, reference_lists
from seqattn.metrics.significance import SentenceCounts
from seqattn.metrics.text import TextScore


def errors(hypotheses: Sequence[str], references: References) -> np.ndarray:
    """(N, 1) the translation edit rate of each text."""
    rows = zip(hypotheses, reference_lists(references, len(hypotheses)), strict=True)
    values = [[TER().sentence_score(text, row).score] for text, row in rows]
    return np.array(values, np.float64).reshape(-1, 1)


@dataclass(frozen=True)
class ErrorScorer:
    """Mean translation edit rate."""

    logged: ClassVar[tuple[str, ...]] = ("ter",)
    lower: ClassVar[tuple[str, ...]] = ("ter",)

    def corpus(self) -> CorpusScores:
        return CorpusScores(self.logged, self.sentences)

    def score(
        self,
        hypotheses: Sequence[str],
        references: References,
        sources: Sequence[str] | None = None,
    ) -> list[TextScore]:
        return [TextScore("TER", float(errors(hypotheses, references).mean()), "mean")]

    def sentences(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> list[SentenceCounts]:
        return SentenceCounts.of_means(["TER"], errors(hypotheses, references))
