"""Keys and values of what has been decoded so far."""

from abc import ABC, abstractmethod
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from seqattn.errors import UserError


class KeysValues(NamedTuple):
    """Projected keys and values, each (B, G, S, Dh)."""

    keys: Tensor
    values: Tensor


class Past(NamedTuple):
    """All keys and values so far, and which of them each row may see.

    Args:
        ancestry: (B, K, L*K) bool, True on the slots that a beam descends from; None for one beam.
    """

    keys: Tensor
    values: Tensor
    ancestry: Tensor | None


class Cache(Protocol):
    """What a kernel remembers between decoding steps."""

    def reorder(self, index: Tensor) -> None:
        """Beam k of sentence b goes on from beam index[b, k]. Args: index: (B, K)."""

    def keep(self, sentences: Tensor) -> None:
        """Only these sentences go on. Args: sentences: (B',) rows of the batch axis."""

    def crop(self, length: int) -> None:
        """Forgets all but the first `length` tokens, padding counted.

        Raises:
            UserError: where the past is not kept token by token (`Abilities.crop` is false).
        """

    @property
    def nbytes(self) -> int:
        """Bytes in use, spare room left out."""


class GrowingCache:
    """Keys and values of every token so far, in one buffer that grows by an eighth when it is full.

    The beams of a sentence write side by side into one row, and a small table says which of the
    slots each beam descends from. Reordering beams moves that table; keys and values stay where
    they were written, and a shared past is stored once more for no one.

    Args:
        beams: K, hypotheses per sentence.
    """

    def __init__(self, beams: int = 1) -> None:
        self.beams = beams
        self.length = 0
        self._keys: Tensor | None = None
        self._values: Tensor | None = None
        self._ancestry: Tensor | None = None  # as `Past`

    def append(self, new: KeysValues) -> Past:
        """Writes T new tokens and gives all of the past, these included.

        Args:
            new: keys and values (B*K, G, T, Dh), the beams of a sentence next to each other.

        Returns:
            Keys and values (B, G, L*K, Dh), slot l*K + k holding token l of beam k.
        """
        rows, _, steps, _ = new.keys.shape
        keys, values = self._side_by_side(new.keys), self._side_by_side(new.values)
        if self._keys is None or self._values is None:
            self._keys, self._values = keys, values
        else:
            start = self.length * self.beams
            self._keys = self._room(self._keys, start, keys)
            self._values = self._room(self._values, start, values)
        self.length += steps
        if self.beams > 1:
            own = torch.eye(self.beams, dtype=torch.bool, device=keys.device).repeat(1, steps)
            own = own.expand(rows // self.beams, -1, -1)
            known = self._ancestry
            self._ancestry = own if known is None else torch.cat((known, own), dim=2)
        used = self.length * self.beams
        return Past(self._keys[:, :, :used], self._values[:, :, :used], self._ancestry)

    def _side_by_side(self, x: Tensor) -> Tensor:
        if self.beams == 1:
            return x
        x = x.unflatten(0, (-1, self.beams))  # (B*K, G, T, Dh) -> (B, K, G, T, Dh)
        return x.permute(0, 2, 3, 1, 4).flatten(2, 3)  # -> (B, G, T, K, Dh) -> (B, G, T*K, Dh)

    def _room(self, buffer: Tensor, start: int, new: Tensor) -> Tensor:
        end = start + new.shape[2]
        if end > buffer.shape[2]:
            size = end + max(end // 8, 4 * self.beams)  # a CPU reads slowly across larger gaps
            larger = new.new_empty(*buffer.shape[:2], size, buffer.shape[3])
            larger[:, :, :start] = buffer[:, :, :start]
            buffer = larger
        buffer[:, :, start:end] = new
        return buffer

    def reorder(self, index: Tensor) -> None:
        if self._ancestry is not None:
            self._ancestry = self._ancestry.take_along_dim(index[..., None], dim=1)

    def keep(self, sentences: Tensor) -> None:
        if self._keys is None or self._values is None:
            return
        used = self.length * self.beams
        self._keys = self._keys[:, :, :used].index_select(0, sentences)
        self._values = self._values[:, :, :used].index_select(0, sentences)
        if self._ancestry is not None:
            self._ancestry = self._ancestry.index_select(0, sentences)

    def crop(self, length: int) -> None:
        self.length = min(length, self.length)
        if self._ancestry is not None:
            self._ancestry = self._ancestry[:, :, : self.length * self.beams]

    @property
    def nbytes(self) -> int:
        return bytes_of(self._keys, self._values, used=self.length * self.beams)


class RowCache(ABC):
    """A cache of bounded size, with a row of its own for each of the `beams` of a sentence."""

    def __init__(self, beams: int) -> None:
        self.beams = beams

    @abstractmethod
    def select(self, rows: Tensor) -> None:
        """Only these rows go on. Args: rows: (B'*K,) of the batch axis."""

    def reorder(self, index: Tensor) -> None:
        if self.beams > 1:
            first = torch.arange(len(index), device=index.device)[:, None] * self.beams
            self.select((first + index).flatten())

    def keep(self, sentences: Tensor) -> None:
        beam = torch.arange(self.beams, device=sentences.device)
        self.select((sentences[:, None] * self.beams + beam).flatten())

    def crop(self, length: int) -> None:
        raise UserError(f"{type(self).__name__} has forgotten what a shorter past would show again")


def bytes_of(*buffers: Tensor | None, used: int) -> int:
    """Bytes of the first `used` tokens of buffers (B, G, L, Dh); a missing one has none."""
    parts = [buffer[:, :, :used] for buffer in buffers if buffer is not None]
    return sum(part.numel() * part.element_size() for part in parts)
