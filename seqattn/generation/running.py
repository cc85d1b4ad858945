"""Hypotheses of a batch during a search."""

import copy
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from seqattn.attention.fixed_cache import fill
from seqattn.tokens import BOS


class Running(ABC):
    """Hypotheses of B' remaining sentences, in tensors that `advance` changes in place.

    A subclass names its tensors, whose first axis is that of sentences and which are 0 or False
    for none. `advance` has fixed shapes and reads no number back, so that it can be captured.

    Args:
        most: (B,) maximum tokens of each sentence, end included.
        beams: K.
    """

    names: tuple[str, ...] = ("most", "ids", "going")
    by_step: ClassVar[tuple[str, ...]] = ()
    """Those of `names` with an axis 2 of steps."""
    outcome: ClassVar[tuple[str, ...]] = ()
    """Those of `names` that hold the results."""
    going: Tensor
    """(B', ...) bool, True for hypotheses that go on."""

    def __init__(self, most: Tensor, beams: int) -> None:
        self.most = most
        self.ids = torch.full((len(most), beams), BOS, device=most.device)
        """(B', K) last tokens."""
        self.live = torch.full((), len(most), device=most.device)
        """Number of sentences that go on."""
        self.sentences = torch.arange(len(most), device=most.device)
        """(B\',) indices of the remaining sentences among all."""
        self.results: dict[str, Tensor] = {}
        """Outcome of all B sentences, for those that do not remain."""

    @abstractmethod
    def advance(self, stepper: Any) -> None:
        """Extend each hypothesis by a token. Args: stepper: a `Stepper`, or what stands for it."""

    def count(self) -> None:
        """Count the sentences that go on."""
        self.live.copy_(self._goes_on().sum())

    def _goes_on(self) -> Tensor:
        return self.going.view(len(self.going), -1).any(dim=1)

    def rows(self, live: int) -> Tensor:
        """Return the rows of `live` sentences, in order, with all that go on among them."""
        return self._goes_on().byte().argsort(descending=True, stable=True)[:live]

    def blank(self, rows: int, length: int) -> Self:
        """Return empty hypotheses of `rows` sentences and `length` steps, for `load`."""
        blank = copy.copy(self)
        blank.live = torch.zeros_like(self.live)
        for name in self.names:
            shape = [rows, *getattr(self, name).shape[1:]]
            if name in self.by_step:
                shape[2] = length
            setattr(blank, name, getattr(self, name).new_zeros(shape))
        return blank

    def load(self, other: Self, rows: Tensor | None = None) -> None:
        """Copy other hypotheses, or those of some sentences, into these, no fewer."""
        self.results = other.store()
        for name in self.names:
            fill(getattr(self, name), getattr(other, name), rows)
        self.sentences = other.sentences if rows is None else other.sentences[rows]

    def keep(self, rows: Tensor) -> None:
        """Drop all but these sentences."""
        self.store()
        self.sentences = self.sentences[rows]
        for name in self.names:
            setattr(self, name, getattr(self, name).index_select(0, rows))

    def store(self) -> dict[str, Tensor]:
        """Add the outcome of the remaining sentences to the results, and return these."""
        for name in self.outcome:
            own = getattr(self, name)
            results = self.results.setdefault(name, own)  # at first those of all sentences
            if results is not own:
                inside = (slice(len(self.sentences)), *map(slice, results.shape[1:]))
                results.index_copy_(0, self.sentences, own[inside])
        return self.results
