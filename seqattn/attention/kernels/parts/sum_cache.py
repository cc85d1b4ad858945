"""The cache of attention whose past is a sum: it never grows."""

import torch
from torch import Tensor

from seqattn.attention.cache import RowCache
from seqattn.attention.kernels.parts.scan import Keys, Sums
from seqattn.errors import UserError


class RecurrentCache(RowCache):
    """The sums of each row's past: as large after a million tokens as after one.

    Args:
        beams: K, hypotheses per sentence.
    """

    def __init__(self, beams: int = 1) -> None:
        super().__init__(beams)
        self.length = 0
        self.sums: Sums | None = None
        """Over all tokens so far, (B*K, G, ...); None while there are none."""
        self._seen: Keys | None = None

    def remember(self, new: Keys) -> Keys:
        """Keeps the keys themselves for once, so that weights can be shown; gives all so far.

        Args:
            new: (B*K, G, T, ...), to be called before `advance` with their sums.

        Raises:
            UserError: where keys went by that were not kept.
        """
        if self._seen is None and self.length:
            raise UserError(
                "linear attention keeps no past to show; capture from the first decoded token on"
            )
        past = self._seen
        if past is not None:
            scale = None
            if past.log_scale is not None and new.log_scale is not None:
                scale = torch.cat((past.log_scale, new.log_scale), dim=2)
            new = Keys(
                torch.cat((past.keys, new.keys), dim=2),
                torch.cat((past.values, new.values), dim=2),
                scale,
            )
        self._seen = new
        return new

    def advance(self, sums: Sums, steps: int) -> None:
        """Goes on by T = `steps` tokens, with `sums` over them and all before them."""
        self.sums = sums
        self.length += steps
        if self._seen is not None and self._seen.keys.shape[2] != self.length:
            self._seen = None

    def select(self, rows: Tensor) -> None:
        if self.sums is not None:
            matrix, maximum = self.sums
            self.sums = Sums(matrix[rows], None if maximum is None else maximum[rows])
        if self._seen is not None:
            keys, values, scale = self._seen
            self._seen = Keys(keys[rows], values[rows], None if scale is None else scale[rows])

    @property
    def nbytes(self) -> int:
        parts = self.sums or ()
        return sum(part.numel() * part.element_size() for part in parts if part is not None)
