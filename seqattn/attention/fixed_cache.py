"""Cache of keys and values in tensors that never move."""

from torch import Tensor

from seqattn.attention.cache import KeysValues, Past, RowCache, bytes_of


class FixedCache(RowCache):
    """Keys and values in tensors of fixed shape and address, as a captured step needs.

    Attention reads all slots, and the mask hides those that are not filled yet. Each beam of a
    sentence has a row of its own.

    Args:
        beams: K, hypotheses per sentence.
        size: number of slots, one per token.
        place: (1,) the slot of the next token.
    """

    def __init__(self, beams: int, size: int, place: Tensor) -> None:
        super().__init__(beams)
        self.size, self.place = size, place
        self._buffers: KeysValues | None = None

    def append(self, new: KeysValues) -> Past:
        """Store the keys and values (B*K, G, 1, Dh) of a token, and return all slots."""
        if self._buffers is None:
            self._buffers = KeysValues(*(_widened(x[:, :, :0], self.size) for x in new))
        for buffer, x in zip(self._buffers, new, strict=True):
            buffer.index_copy_(2, self.place, x)
        return Past(*self._buffers, None)

    def grow(self, size: int) -> None:
        """Move to tensors with this many slots."""
        self.size = size
        if self._buffers is not None:
            self._buffers = KeysValues(*(_widened(x, size) for x in self._buffers))

    def select(self, rows: Tensor) -> None:
        if self._buffers is not None:
            self._buffers = self._buffers.keep(rows)

    def reorder(self, index: Tensor) -> None:
        before = self._buffers
        super().reorder(index)
        if before is not None and self._buffers is not None:
            for old, new in zip(before, self._buffers, strict=True):
                old.copy_(new)
            self._buffers = before

    @property
    def nbytes(self) -> int:
        return bytes_of(*(self._buffers or ()), used=self.size)


def _widened(x: Tensor, size: int) -> Tensor:
    """Return x (B, G, N, Dh) followed by zeros up to `size` slots."""
    buffer = x.new_zeros(*x.shape[:2], size, x.shape[3])
    buffer[:, :, : x.shape[2]] = x
    return buffer
