"""Rows of similar lengths: bands of them, laid out in a line that is cut into batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from seqattn.data.bucketing import BatchLimits

Ints = npt.NDArray[np.integer[Any]]

# Differences of source and target are blurred by so many tokens, or by that share of them. More
# gives a row other company in each epoch, and pads more: of 100,000 pairs in batches of 4,096
# tokens 0.5, 0.6, 1 and 1.5 pad 2.8, 3.0, 3.5 and 4.1 %, and of a row's company 60, 55, 40 and
# 31 % come again; of a million 13 % do.
_BLUR, _RELATIVE_BLUR = 0.5, 1 / 32


def batch_count(
    source_lengths: Ints, target_lengths: Ints, rows: Ints, limits: BatchLimits, multiple: int
) -> int:
    """How many batches a `BucketSampler` makes of rows whose lengths alone are known.

    Args:
        source_lengths, target_lengths: (N,) pairs of lengths, each once.
        rows: (N,) how many rows have them.
        limits: what a batch may hold.
        multiple: of which an epoch's batches are one.
    """
    longer = np.maximum(source_lengths, target_lengths)
    counts, bounds = sizes_of(bands(longer), longer, rows)
    count, total = len(cut(counts, bounds, limits)[0]), int(rows.sum())
    whole = -(-count // multiple) * multiple
    return whole if whole <= total else total // multiple * multiple


def bands(longer: Ints) -> npt.NDArray[np.int64]:
    """(N,) the band of each row by its longer side, the longest rows' first."""
    # Bands grow with length, to 1/32 of it: among long documents hardly two are equally long.
    edges = [0]
    while edges[-1] < int(longer.max()):
        edges.append(edges[-1] + max(1, edges[-1] // 32))
    return len(edges) - 1 - np.searchsorted(edges, longer)


def sizes_of(band: Ints, longer: Ints, rows: Ints | None = None) -> tuple[list[int], list[int]]:
    """How many rows each band has, and the longest of them.

    Args:
        band: (N,) as `bands`.
        longer: (N,) tokens of each row's longer side.
        rows: (N,) how many rows each stands for; None for one.
    """
    bounds = np.zeros(int(band.max()) + 1, np.int64)
    np.maximum.at(bounds, band, longer)
    return np.bincount(band, rows).astype(np.int64).tolist(), bounds.tolist()


def in_line(
    band: Ints, difference: Ints, generator: np.random.Generator | None
) -> npt.NDArray[np.int64]:
    """(N,) numbers of rows, band by band, in each by difference, to and fro like a snake.

    Args:
        band: (N,) as `bands`.
        difference: (N,) tokens of the source less those of the target.
        generator: draws who stands beside whom; None for the same order always.
    """
    blurred = difference.astype(np.float64)
    if generator is not None:
        width = np.maximum(_BLUR, _RELATIVE_BLUR * np.abs(blurred))
        blurred += width * generator.uniform(-1, 1, len(blurred))
    return np.lexsort((np.where(band % 2, blurred, -blurred), band))


def cut(counts: list[int], bounds: list[int], limits: BatchLimits) -> tuple[list[int], list[int]]:
    """Cuts the line of bands into batches, each as full as the limits allow."""
    sizes: list[int] = []
    lengths: list[int] = []
    rows = length = 0
    for count, bound in zip(counts, bounds, strict=True):
        while count:
            grown = max(length, bound)
            fit = min(limits.rows(grown) - rows, count)
            if fit > 0:
                rows, length, count = rows + fit, grown, count - fit
            else:
                sizes.append(rows)
                lengths.append(length)
                rows = length = 0
    return [*sizes, rows], [*lengths, length]
