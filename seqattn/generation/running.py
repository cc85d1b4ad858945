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
        max_length: (B,) maximum tokens of each sentence, end included.
        beams: K.
    """

    names: tuple[str, ...] = ("max_length", "ids", "active")
    by_step: ClassVar[tuple[str, ...]] = ()
    """Those of `names` with an axis 2 of steps."""
    outcome: ClassVar[tuple[str, ...]] = ()
    """Those of `names` that hold the results."""
    active: Tensor
    """(B', ...) bool, True for hypotheses that go on."""

    def __init__(self, max_length: Tensor, beams: int) -> None:
        self.max_length = max_length
        self.ids = torch.full((len(max_length), beams), BOS, device=max_length.device)
        """(B', K) last tokens."""
        self.live = torch.full((), len(max_length), device=max_length.device)
        """Number of sentences that go on."""
        self.sentences = torch.arange(len(max_length), device=max_length.device)
        """(B\',) indices of the remaining sentences among all."""
        self.results: dict[str, Tensor] = {}
        """Outcome of all B sentences, for those that do not remain."""

    @abstractmethod
    def advance(self, stepper: Any) -> None:
        """Extend each hypothesis by a token. Args: stepper: a `Stepper`, or what stands for it."""

    def count(self) -> None:
        """Count the sentences that go on."""
        self.live.copy_(self._is_active().sum())

    def _is_active(self) -> Tensor:
        return self.active.view(len(self.active), -1).any(dim=1)

    def rows(self, live: int) -> Tensor:
        """Return the rows of `live` sentences, in order, with all that go on among them."""
        return self._is_active().byte().argsort(descending=True, stable=True)[:live]

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
            values = getattr(self, name)
            results = self.results.setdefault(name, values)  # at first those of all sentences
            if results is not values:
                inside = (slice(len(self.sentences)), *map(slice, results.shape[1:]))
                results.index_copy_(0, self.sentences, values[inside])
        return self.results
