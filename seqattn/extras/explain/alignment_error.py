"""How far word alignments are from those that people made."""

from collections.abc import Iterable, Set

import torch
from torch import Tensor
from torchmetrics import Metric

Link = tuple[int, int]


class AlignmentErrorRate(Metric):
    """The alignment error rate of a corpus (Och & Ney 2003, Computational Linguistics 29:1).

    AER = 1 - (|A & S| + |A & P|) / (|A| + |S|)

    of the links A that were found, the sure ones S and the possible ones P, which hold S. It is 0
    for an alignment with all sure links and none that is not possible.
    """

    full_state_update = False
    right: Tensor
    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("right", "total"):
            self.add_state(name, default=torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, found: Iterable[Link], sure: Set[Link], possible: Set[Link]) -> None:
        """Adds a sentence. Args: links as pairs of a source and a target word."""
        links = set(found)
        self.right += len(links & sure) + len(links & (possible | sure))
        self.total += len(links) + len(sure)

    def compute(self) -> Tensor:
        """From 0 to 100; NaN where there is no link at all."""
        return 100 * (1 - self.right / self.total)
