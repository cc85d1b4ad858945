"""Alignment error rate against gold word alignments."""

from collections.abc import Iterable, Set

import torch
from torch import Tensor
from torchmetrics import Metric

Link = tuple[int, int]


class AlignmentErrorRate(Metric):
    """Alignment error rate of a corpus (Och & Ney 2003, Computational Linguistics 29:1).

    AER = 1 - (|A & S| + |A & P|) / (|A| + |S|)

    for predicted links A, sure links S and possible links P, a superset of S. It is 0 for an
    alignment with all sure links and no link outside the possible ones.
    """

    full_state_update = False
    right: Tensor
    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("right", "total"):
            self.add_state(name, default=torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, predicted: Iterable[Link], sure: Set[Link], possible: Set[Link]) -> None:
        """Add a sentence. Args: links as pairs of a source and a target word."""
        links = set(predicted)
        self.right += len(links & sure) + len(links & (possible | sure))
        self.total += len(links) + len(sure)

    def compute(self) -> Tensor:
        """Return the rate from 0 to 100; NaN without links."""
        return 100 * (1 - self.right / self.total)
