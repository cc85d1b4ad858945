"""Figures on how well one number foretells another."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
BINS = 10
"""Tenths of the sentences."""


def ranks(values: Floats) -> Floats:
    """Return ranks (N,) from 1, equal values sharing the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((counts.cumsum() - (counts - 1) / 2)[inverse])


def spearman(x: Floats, y: Floats) -> float:
    """Return the rank correlation of two arrays (N,); 0 if all values of one are equal."""
    first, second = (ranks(values) - (len(values) + 1) / 2 for values in (x, y))
    size = np.sqrt((first**2).sum() * (second**2).sum())
    return float((first * second).sum() / size) if size else 0.0


def auc(good: Floats, bad: Floats) -> float:
    """Return the area under the ROC curve: how often a good one is above a bad one, ties half."""
    above = ranks(np.concatenate([good, bad]))[: len(good)].sum() - len(good) * (len(good) + 1) / 2
    return float(above / (len(good) * len(bad)))


def reliability(expected: Floats, scores: Floats) -> list[list[float]]:
    """Return number, mean expected score and mean score of each tenth, by expected score."""
    parts = np.array_split(np.argsort(expected, kind="stable"), BINS)
    return [[len(p), float(expected[p].mean()), float(scores[p].mean())] for p in parts if len(p)]


def risk_coverage(expected: Floats, scores: Floats) -> list[list[float]]:
    """Return share, mean score, and the highest possible mean, of the best 10%, 20%, ... 100%."""
    orders = [np.argsort(-values, kind="stable") for values in (expected, scores)]
    sizes = [max(1, round(len(scores) * part / BINS)) for part in range(1, BINS + 1)]
    return [
        [size / len(scores), *(float(scores[order[:size]].mean()) for order in orders)]
        for size in sizes
    ]
