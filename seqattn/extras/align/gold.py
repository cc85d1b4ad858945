"""Scores of alignments against gold links, with intervals over sentences."""

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from seqattn.data.word_links import WordLinks
from seqattn.extras.align.symmetrize import Links
from seqattn.metrics.significance import LEVEL, SentenceCounts


def alignment_scores(links: Sequence[Links], gold: Sequence[WordLinks]) -> list[SentenceCounts]:
    """Return alignment error rate, precision and recall (Och & Ney 2003), 0 to 100."""
    counts = np.array(
        [
            [len(one & sure), len(one & possible), len(one), len(sure)]
            for one, (sure, possible) in zip(links, gold, strict=True)
        ],
        np.float64,
    ).reshape(-1, 4)
    return [
        SentenceCounts("AER", counts, lambda c: _percent(c[2] + c[3] - c[0] - c[1], c[2] + c[3])),
        SentenceCounts("precision", counts, lambda c: _percent(c[1], c[2])),
        SentenceCounts("recall", counts, lambda c: _percent(c[0], c[3])),
    ]


def _percent(part: float, whole: float) -> float:
    return 100 * part / whole if whole else 0.0


def with_interval(score: SentenceCounts) -> str:
    """Return a score with half the width of its interval over sentences (jackknife)."""
    count = len(score.counts)
    if count < 2:
        return f"{score.score:.1f}"
    deviation = float(score.influence.std(ddof=1)) / count**0.5
    return f"{score.score:.1f} ± {NormalDist().inv_cdf(1 - LEVEL / 2) * deviation:.1f}"
