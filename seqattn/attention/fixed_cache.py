"""Caches in tensors that never move, for decoding steps that are captured as CUDA graphs."""

from abc import abstractmethod

import torch
from torch import Tensor

from seqattn.attention.beam_table import BeamSlots
from seqattn.attention.cache import KeysValues, Past, RowCache


class FixedTable:
    """Slots that each beam of a sentence descends from, for `FixedCache`s with one slot per token.

    Token l of beam k has slot l*K + k, so that reordering beams moves no keys.

    Args:
        sentences: B.
        beams: K, hypotheses per sentence.
        capacity: maximum tokens of a hypothesis.
        device: device of the tensors.
    """

    def __init__(self, sentences: int, beams: int, capacity: int, device: torch.device) -> None:
        self.capacity = capacity
        self.token_index = torch.full((1,), -1, device=device)
        """(1,) index of the last token; -1 at first."""
        # (B, K, N) bool, see `BeamSlots`
        self.ancestry = torch.zeros(sentences, beams, capacity * beams, device=device).bool()
        self.tokens = torch.arange(capacity, device=device).repeat_interleave(beams)
        self.slots = BeamSlots(self.ancestry, self.tokens)
        self.new = self.token_index
        """(K,) slots of the newest token of each beam."""

    def advance(self) -> None:
        """Add the next token of each beam."""
        self.token_index += 1
        sentences, beams, _ = self.ancestry.shape
        if beams == 1:
            self.slots = BeamSlots((self.tokens <= self.token_index)[None, None], self.tokens)
            return
        self.new = self.token_index * beams + torch.arange(beams, device=self.token_index.device)
        newest = torch.eye(beams, dtype=torch.bool, device=self.token_index.device)
        self.ancestry.index_copy_(2, self.new, newest.expand(sentences, -1, -1))

    def reset(self) -> None:
        """Forget all tokens."""
        self.token_index.fill_(-1)
        self.ancestry.zero_()

    def reorder(self, index: Tensor) -> None:
        """Continue beam k of sentence b from beam index[b, k]. Args: index: (B, K)."""
        if index.shape[1] > 1:
            self.ancestry.copy_(self.ancestry.take_along_dim(index[..., None], dim=1))


class FixableCache(RowCache):
    """Base of caches of bounded size whose tensors can stay where they are."""

    token_index: Tensor | None = None
    """(1,) index of the next token if the tensors must not move, see `FixedTable`; else None."""

    @abstractmethod
    def tensors(self) -> list[Tensor]:
        """Return its tensors, each with a first axis of rows; none before the first token."""

    def reset(self) -> None:
        """Forget all tokens, without moving the tensors."""
        for x in self.tensors():
            x.zero_()  # not only hidden: 0 times infinity would be NaN

    def reorder(self, index: Tensor) -> None:
        if self.token_index is None or self.beams == 1:
            super().reorder(index)
            return
        first = torch.arange(len(index), device=index.device)[:, None] * self.beams
        for x in self.tensors():
            x.copy_(x.index_select(0, (first + index).flatten()))

    @property
    def nbytes(self) -> int:
        return sum(x.numel() * x.element_size() for x in self.tensors())


class FixedCache(FixableCache):
    """Keys and values (B, G, N, Dh) of all tokens so far. Args: table: their slots."""

    def __init__(self, table: FixedTable) -> None:
        super().__init__(beams=1)  # reordered by the table
        self.table = table
        self._buffers: KeysValues | None = None

    def append(self, new: KeysValues) -> Past:
        """Store the keys and values (B*K, G, 1, Dh) of a token, and return all slots."""
        sentences, beams, slots = self.table.ancestry.shape
        if self._buffers is None:
            shapes = ((sentences, x.shape[1], slots, x.shape[3]) for x in new)
            self._buffers = KeysValues(*map(new.keys.new_zeros, shapes))
        for buffer, x in zip(self._buffers, new, strict=True):
            x = x[:, :, 0].unflatten(0, (-1, beams)).transpose(1, 2)  # (B, G, K, Dh)
            buffer.index_copy_(2, self.table.new, x)
        return Past(*self._buffers, self.table.slots)

    def select(self, rows: Tensor) -> None:
        raise NotImplementedError

    def tensors(self) -> list[Tensor]:
        return [*(self._buffers or ())]


def fill(target: Tensor, source: Tensor, rows: Tensor | None = None) -> None:
    """Copy a tensor (N, ...) or some of its rows into one that is at least as large, 0 beyond."""
    source = source if rows is None else source.index_select(0, rows)
    target.zero_()
    target[tuple(map(slice, source.shape))] = source
