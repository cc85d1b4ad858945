"""A cache of bounded size: the first tokens for good, and the last ones in a ring."""

from typing import NamedTuple

import torch
from torch import Tensor

from seqattn.attention.cache import KeysValues, RowCache, bytes_of


class Kept(NamedTuple):
    """What a rolling cache holds, in no order."""

    keys: Tensor
    values: Tensor
    places: Tensor
    """(C,) or (B*K, C), how many tokens of the row stand before each; -1 where a slot is empty."""

    def followed_by(self, new: KeysValues, places: Tensor) -> "Kept":
        """These and new tokens behind them, at places (T,) or (B*K, T)."""
        before = self.places
        if places.dim() > before.dim():
            before = before.expand(places.shape[0], -1)
        return Kept(
            torch.cat((self.keys, new.keys), dim=2),
            torch.cat((self.values, new.values), dim=2),
            torch.cat((before, places), dim=-1),
        )


class RollingCache(RowCache):
    """The first tokens, and the last ones, of each row; a new token takes the oldest's slot.

    Padding is never stored, so rows may have seen different numbers of tokens. Each beam has a row
    of its own, since a ring cannot be shared once beams part.

    Args:
        first: tokens at the beginning that stay.
        last: tokens that roll, the newest included.
        beams: K, hypotheses per sentence.
    """

    def __init__(self, first: int, last: int, beams: int = 1) -> None:
        super().__init__(beams)
        self.first, self.last = first, last
        self._seen: int | Tensor = 0  # tokens so far; (B*K, 1) once the rows differ
        self._most = 0  # tokens and padding so far: no row has seen more
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    @property
    def _used(self) -> int:
        return min(self._most, self.first + self.last)

    def places(self, steps: int, device: torch.device) -> Tensor:
        """Where the next tokens stand: (T,), or (B*K, T) where rows differ."""
        return torch.arange(steps, device=device) + self._seen

    def kept(self, like: KeysValues) -> Kept:
        """All that is held; nothing, of the kind of `like`, before anything was written."""
        if self._keys is None or self._values is None:
            nothing = like.keys[:, :, :0]
            return Kept(nothing, nothing, torch.arange(0, device=nothing.device))
        slots = torch.arange(self._used, device=self._keys.device)
        newest = self._seen - 1
        # in the ring, a slot's token is the newest of those that stand a whole turn apart
        places = newest - (newest - slots) % self.last
        places = torch.where(slots < self.first, slots, places)
        if isinstance(newest, Tensor):
            places = places.masked_fill(slots > newest, -1)
        return Kept(self._keys[:, :, : self._used], self._values[:, :, : self._used], places)

    def write(self, new: KeysValues, real: Tensor | None = None) -> None:
        """Adds up to `last` tokens.

        Args:
            new: keys and values (B*K, G, T, Dh), in each row its tokens first, its padding last.
            real: (B*K, T) bool, True where a token stands; None where all do.
        """
        rows, _, steps, _ = new.keys.shape
        self._most += steps
        self._keys = self._room(self._keys, new.keys)
        self._values = self._room(self._values, new.values)
        if real is not None and isinstance(self._seen, int):
            self._seen = new.keys.new_full((rows, 1), self._seen, dtype=torch.long)
        if isinstance(self._seen, int):
            self._write_everywhere(new, self._seen)
            self._seen += steps
            return
        places = self.places(steps, new.keys.device)
        slots = torch.where(
            places < self.first, places, self.first + (places - self.first) % self.last
        )
        index = slots[:, None, :, None].expand_as(new.keys)
        for buffer, x in ((self._keys, new.keys), (self._values, new.values)):
            if real is not None:  # padding leaves its slot as it was
                x = torch.where(real[:, None, :, None], x, buffer.gather(2, index))
            buffer.scatter_(2, index, x.to(buffer.dtype))
        self._seen = self._seen + (steps if real is None else real.sum(dim=1, keepdim=True))

    def _write_everywhere(self, new: KeysValues, seen: int) -> None:
        """Writes where all rows have seen the same number of tokens, run by run of slots."""
        assert self._keys is not None
        assert self._values is not None
        start, steps = 0, new.keys.shape[2]
        while start < steps:
            place = seen + start
            slot = place if place < self.first else self.first + (place - self.first) % self.last
            run = min(steps - start, self.first + self.last - slot)
            for buffer, x in ((self._keys, new.keys), (self._values, new.values)):
                buffer[:, :, slot : slot + run] = x[:, :, start : start + run]
            start += run

    def _room(self, buffer: Tensor | None, new: Tensor) -> Tensor:
        held = 0 if buffer is None else buffer.shape[2]
        if buffer is not None and held >= self._used:
            return buffer
        size = min(max(2 * held, self._used, 16), self.first + self.last)
        larger = new.new_zeros(*new.shape[:2], size, new.shape[3])
        if buffer is not None:
            larger[:, :, :held] = buffer
        return larger

    def select(self, rows: Tensor) -> None:
        if self._keys is None or self._values is None:
            return
        self._keys = self._keys[:, :, : self._used].index_select(0, rows)
        self._values = self._values[:, :, : self._used].index_select(0, rows)
        if isinstance(self._seen, Tensor):
            self._seen = self._seen.index_select(0, rows)

    @property
    def nbytes(self) -> int:
        return bytes_of(self._keys, self._values, used=self._used)
