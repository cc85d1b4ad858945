"""Caches of keys and values for decoding."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from seqattn import ops
from seqattn.attention.beam_table import BeamSlots, BeamTable


class KeysValues(NamedTuple):
    """Projected keys and values, each (B, G, S, Dh)."""

    keys: Tensor
    values: Tensor

    def keep(self, sentences: Tensor) -> "KeysValues":
        """Select the keys and values of some sentences. Args: sentences: (B',) batch rows."""
        return KeysValues(*(part.index_select(0, sentences) for part in self))

    def tensors(self) -> list[Tensor]:
        """Return all of its tensors."""
        return [*self]


class Past(NamedTuple):
    """The keys and values (B, G, N, Dh) so far.

    Args:
        slots: contents of the slots; None if slot l holds token l of a single beam.
    """

    keys: Tensor
    values: Tensor
    slots: BeamSlots | None


class Cache(Protocol):
    """State of a kernel between decoding steps."""

    def reorder(self, index: Tensor) -> None:
        """Continue beam k of sentence b from beam index[b, k]. Args: index: (B, K)."""

    def keep(self, sentences: Tensor) -> None:
        """Drop all but these sentences. Args: sentences: (B',) batch rows."""

    def crop(self, length: int) -> None:
        """Drop all but the first `length` tokens, padding included, if `Abilities.crop`."""

    @property
    def nbytes(self) -> int:
        """Bytes in use, without spare capacity."""


class GrowingCache:
    """Keys and values of all tokens so far, in a buffer that grows when full.

    The beams of a sentence write into one row, and a small table says which slots each beam
    descends from. Reordering beams changes only that table; keys and values stay in place, and a
    shared past is stored once. Before it grows, the buffer drops the slots that no beam descends
    from anymore, if they make up at least a quarter of it: beams soon share most of their past, so
    L tokens of K beams take little more than L slots. On a GPU it keeps them, as counting them
    would force a sync. It grows by an eighth on a CPU, where larger gaps slow down reads, and
    elsewhere to twice its size.

    Args:
        beams: K, hypotheses per sentence.
        forgets: drop such slots; False keeps token l of beam k in slot l*K + k.
    """

    def __init__(self, beams: int = 1, forgets: bool = True) -> None:
        self.beams = beams
        self.forgets = forgets
        self.length = 0
        self._keys: Tensor | None = None
        self._values: Tensor | None = None
        self._used = 0
        """Number N of slots in use; the capacity may be larger."""
        self._table = BeamTable(beams)
        self._leads = True
        self._forgotten = 0

    def follow(self, leader: "GrowingCache") -> None:
        """Share the table of a cache that always appends before this one. Both are empty."""
        self._table, self._leads = leader._table, False

    def append(self, new: KeysValues) -> Past:
        """Append T new tokens and return the complete past, including them.

        Args:
            new: keys and values (B*K, G, T, Dh), the beams of a sentence adjacent.
        """
        steps = new.keys.shape[2]
        keys, values = self._side_by_side(new.keys), self._side_by_side(new.values)
        if self.beams > 1:
            self._append_slots(keys, steps)
        if self._keys is None or self._values is None:
            self._keys, self._values = keys, values
        else:
            self._keys = self._grow(self._keys, keys)
            self._values = self._grow(self._values, values)
        self._used += keys.shape[2]
        self.length += steps
        slots = self._table.slots
        return Past(self._keys[:, :, : self._used], self._values[:, :, : self._used], slots)

    def _append_slots(self, keys: Tensor, steps: int) -> None:
        """Bring the table up to this step, and the buffers up to the table."""
        table = self._table
        if self._leads:
            full = self._keys is not None and self._used + keys.shape[2] > self._keys.shape[2]
            if full and self.forgets and ops.at_hand(keys):  # would wait for a GPU
                table.forget()
            table.append(len(keys), steps, keys.device)
        if self._forgotten != table.forgotten:
            self._forgotten, retained = table.forgotten, table.retained
            assert self._keys is not None
            assert self._values is not None
            assert retained is not None
            self._keys = _gathered(self._keys, retained)
            self._values = _gathered(self._values, retained)
            self._used = retained.shape[1]

    def _side_by_side(self, x: Tensor) -> Tensor:
        if self.beams == 1:
            return x
        x = x.unflatten(0, (-1, self.beams))  # (B*K, G, T, Dh) -> (B, K, G, T, Dh)
        return x.permute(0, 2, 3, 1, 4).flatten(2, 3)  # -> (B, G, T, K, Dh) -> (B, G, T*K, Dh)

    def _grow(self, buffer: Tensor, new: Tensor) -> Tensor:
        start, end = self._used, self._used + new.shape[2]
        if end > buffer.shape[2]:
            spare = end // 8 if ops.at_hand(buffer) else end
            size = end + max(spare, 4 * self.beams)
            larger = new.new_empty(*buffer.shape[:2], size, buffer.shape[3])
            larger[:, :, :start] = buffer[:, :, :start]
            buffer = larger
        buffer[:, :, start:end] = new
        return buffer

    def reorder(self, index: Tensor) -> None:
        if self._leads:
            self._table.reorder(index)

    def keep(self, sentences: Tensor) -> None:
        if self._leads:
            self._table.keep(sentences)
        if self._keys is not None and self._values is not None:
            self._keys = self._keys[:, :, : self._used].index_select(0, sentences)
            self._values = self._values[:, :, : self._used].index_select(0, sentences)

    def crop(self, length: int) -> None:
        self.length = length = min(length, self.length)
        if self._leads:
            self._table.crop(length)
        slots = self._table.slots
        self._used = length if slots is None else slots.tokens.shape[-1]

    @property
    def nbytes(self) -> int:
        return bytes_of(self._keys, self._values, used=self._used)


def share_tables(caches: Sequence[Cache]) -> None:
    """Give the growing caches of a decoder's layers, all empty, one table of beams."""
    leaders: dict[bool, GrowingCache] = {}
    for cache in caches:
        if isinstance(cache, GrowingCache) and cache.beams > 1:
            leader = leaders.setdefault(cache.forgets, cache)
            if leader is not cache:
                cache.follow(leader)


class RowCache(ABC):
    """A cache of bounded size, with a separate row for each of a sentence's `beams`."""

    def __init__(self, beams: int) -> None:
        self.beams = beams

    @abstractmethod
    def select(self, rows: Tensor) -> None:
        """Drop all but these rows. Args: rows: (B'*K,) batch rows."""

    def reorder(self, index: Tensor) -> None:
        if self.beams > 1:
            first = torch.arange(len(index), device=index.device)[:, None] * self.beams
            self.select((first + index).flatten())

    def keep(self, sentences: Tensor) -> None:
        beam = torch.arange(self.beams, device=sentences.device)
        self.select((sentences[:, None] * self.beams + beam).flatten())

    def crop(self, length: int) -> None:
        raise NotImplementedError


def _gathered(buffer: Tensor, slots: Tensor) -> Tensor:
    """Gather slots (B, M) of each sentence: (B, G, N, Dh) -> (B, G, M, Dh)."""
    sentences, groups, size, width = buffer.shape
    first = torch.arange(sentences * groups, device=slots.device) * size
    rows = first.view(sentences, groups, 1) + slots[:, None]
    return buffer.reshape(-1, width).index_select(0, rows.flatten()).view(*rows.shape, width)


def bytes_of(*buffers: Tensor | None, used: int) -> int:
    """Return the bytes of the first `used` tokens of buffers (B, G, L, Dh); 0 for None."""
    parts = [buffer[:, :, :used] for buffer in buffers if buffer is not None]
    return sum(part.numel() * part.element_size() for part in parts)
