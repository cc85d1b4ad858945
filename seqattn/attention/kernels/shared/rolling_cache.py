"""A cache of bounded size: the first tokens permanently, and the last ones in a ring."""

from typing import NamedTuple

import torch
from torch import Tensor

from seqattn.attention.cache import KeysValues, bytes_of
from seqattn.attention.fixed_cache import FixableCache


class CachedTokens(NamedTuple):
    """Contents of a rolling cache, in no particular order."""

    keys: Tensor
    values: Tensor
    positions: Tensor  # (C,) or (B*K, C), position of each token in its row; -1 for none


class RollingCache(FixableCache):
    """The first and the last tokens of each row; a new token replaces the oldest.

    Padding is never stored, so rows may have seen different numbers of tokens. Each beam has its
    own row, as a ring cannot be shared after beams diverge.

    Args:
        first: initial tokens stored permanently.
        last: recent tokens, the newest included.
        beams: K, hypotheses per sentence.
    """

    def __init__(self, first: int, last: int, beams: int = 1) -> None:
        super().__init__(beams)
        self.first, self.last = first, last
        self.length = 0  # tokens and padding so far, the maximum over rows
        self._num_tokens: int | Tensor = 0  # tokens so far; (B*K, 1) once the rows differ
        self._keys: Tensor | None = None  # slots, and one more for discarded tokens
        self._values: Tensor | None = None

    @property
    def _used(self) -> int:
        return min(self.length, self.first + self.last)

    def next_positions(self, steps: int, device: torch.device) -> Tensor:
        """Return the positions of the next tokens: (T,), or (B*K, T) if rows differ."""
        if self.token_index is not None:
            return self.token_index[None]
        return torch.arange(steps, device=device) + self._num_tokens

    def append(self, new: KeysValues, real: Tensor | None) -> CachedTokens:
        """Append T tokens, and return them together with all tokens that the first of them sees.

        Args:
            new: keys and values (B*K, G, T, Dh), in each row tokens first, padding last.
            real: (B*K, T) bool, True on tokens; None if all are.
        """
        if self.token_index is not None:
            return self._append_fixed(new, self.token_index)
        steps = new.keys.shape[2]
        at = self.next_positions(steps, new.keys.device)
        if steps == 1 and real is None:  # replaces the token that leaves the window
            self._write(new, at, real)
            return self._cached_tokens()
        visible = CachedTokens(new.keys, new.values, at if real is None else at.where(real, -1))
        if self.length:
            cached = self._cached_tokens()
            positions = cached.positions.expand(*visible.positions.shape[:-1], -1)
            visible = CachedTokens(
                torch.cat((cached.keys, new.keys), dim=2),
                torch.cat((cached.values, new.values), dim=2),
                torch.cat((positions, visible.positions), dim=-1),
            )
        self._write(new, at, real)
        return visible

    def _append_fixed(self, new: KeysValues, position: Tensor) -> CachedTokens:
        """Append one token at a position that only the device knows, and return all slots."""
        size, slot = self.first + self.last, self._slots_of(position)
        if self._keys is None or self._values is None:
            self._keys, self._values = (x.new_zeros(*x.shape[:2], size, x.shape[3]) for x in new)
        self._keys.index_copy_(2, slot, new.keys)
        self._values.index_copy_(2, slot, new.values)
        slots = torch.arange(size, device=slot.device)
        return CachedTokens(self._keys, self._values, self._positions_in(slots, position)[None])

    def _cached_tokens(self) -> CachedTokens:
        assert self._keys is not None
        assert self._values is not None
        slots = torch.arange(self._used, device=self._keys.device)
        positions = self._positions_in(slots, self._num_tokens - 1)
        return CachedTokens(
            self._keys[:, :, : self._used], self._values[:, :, : self._used], positions
        )

    def _positions_in(self, slots: Tensor, newest: int | Tensor) -> Tensor:
        """Return the position of the token in each slot (C,): (C,), or (B*K, C) if rows differ."""
        # a ring slot holds the newest of the positions that are congruent to it
        at = newest - (newest - slots) % self.last
        at = torch.where(slots < self.first, slots, at)
        return at.masked_fill(slots > newest, -1) if isinstance(newest, Tensor) else at

    def _slots_of(self, at: Tensor) -> Tensor:
        """Return the slots of tokens at positions `at`."""
        return torch.where(at < self.first, at, self.first + (at - self.first) % self.last)

    def _write(self, new: KeysValues, at: Tensor, real: Tensor | None) -> None:
        """Store new tokens at positions `at`; other arguments as for `append`."""
        steps, count = new.keys.shape[2], self._num_tokens
        self.length += steps
        self._keys, self._values = self._grow(self._keys, new[0]), self._grow(self._values, new[1])
        self._num_tokens = count + (steps if real is None else real.sum(dim=1, keepdim=True))
        if steps == 1 and isinstance(self._num_tokens, int):
            assert isinstance(count, int)
            slot = count if count < self.first else self.first + (count - self.first) % self.last
            self._keys[:, :, slot], self._values[:, :, slot] = (
                new.keys[:, :, 0],
                new.values[:, :, 0],
            )
            return
        slots = self._slots_of(at)
        stays = (at < self.first) | (at >= self._num_tokens - self.last)
        stays = stays if real is None else stays & real
        slots = slots.where(stays, self._keys.shape[2] - 1)
        index = slots.view(-1, 1, steps, 1).expand_as(new.keys)
        for buffer, x in zip((self._keys, self._values), new):
            buffer.scatter_(2, index, x.to(buffer.dtype))

    def _grow(self, buffer: Tensor | None, new: Tensor) -> Tensor:
        capacity = 0 if buffer is None else buffer.shape[2] - 1
        if buffer is not None and capacity >= self._used:
            return buffer
        size = min(max(2 * capacity, self._used, 16), self.first + self.last)
        larger = new.new_zeros(*new.shape[:2], size + 1, new.shape[3])
        if buffer is not None:
            larger[:, :, :capacity] = buffer[:, :, :capacity]
        return larger

    def select(self, rows: Tensor) -> None:
        if self._keys is None or self._values is None:
            return
        self._keys = self._keys[:, :, : self._used + 1].index_select(0, rows)
        self._values = self._values[:, :, : self._used + 1].index_select(0, rows)
        if isinstance(self._num_tokens, Tensor):
            self._num_tokens = self._num_tokens.index_select(0, rows)

    def tensors(self) -> list[Tensor]:
        return [x for x in (self._keys, self._values) if x is not None]

    @property
    def nbytes(self) -> int:
        return bytes_of(self._keys, self._values, used=self._used)
