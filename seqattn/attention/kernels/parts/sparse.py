"""What sparse softmax attention shares: real tokens first, a pattern over their positions."""

from abc import abstractmethod
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from seqattn.attention.cache import Cache, GrowingCache, KeysValues, Past
from seqattn.attention.kernels.softmax import SoftmaxKernel, fold_beams, fold_mask, unfold_beams
from seqattn.attention.masks import Mask, real_first
from seqattn.positions.base import Position


class Arranged(NamedTuple):
    """Self-attention with every row's tokens first, so that slot i holds real position i.

    N is the length rounded up to whole blocks.
    """

    query: Tensor
    """(B, H, N, Dh)."""
    keys: Tensor
    """(B, G, N, Dh)."""
    values: Tensor
    """(B, G, N, Dh)."""
    real: Tensor
    """(B, N) bool."""
    extra: Tensor | None
    """The user's own mask, bool (B, H or 1, N, N); None for none."""
    causal: bool

    def extra_at(self, i: Tensor, j: Tensor) -> Tensor | None:
        """The user's own mask on pieces.

        Args:
            i: slots of the queries (B or 1, P, c).
            j: slots of the keys (B or 1, P, s).

        Returns:
            (B*P, H or 1, c, s), or None where there is none.
        """
        if self.extra is None:
            return None
        rows = torch.arange(self.extra.shape[0], device=i.device)[:, None, None, None]
        found = self.extra.permute(0, 2, 3, 1)[rows, i[..., :, None], j[..., None, :]]
        return found.permute(0, 1, 4, 2, 3).flatten(0, 1)  # (B, P, c, s, H) -> (B*P, H, c, s)


class SparseKernel(SoftmaxKernel):
    """Softmax over the keys of a pattern that is made of real positions only.

    A full pass runs in pieces (`_pieces`). Decoding reads the growing cache under the pattern as a
    mask, so a token costs time linear in the past; a first call of several tokens is a full pass.
    Observed weights are written out densely beside either.

    Args:
        unit: tokens that pieces come in multiples of, at least 1.
    """

    def __init__(
        self, num_heads: int, num_kv_heads: int, head_dim: int, dropout: float, unit: int
    ) -> None:
        super().__init__(num_heads, num_kv_heads, head_dim, dropout)
        self.unit = unit

    @abstractmethod
    def pattern(self, mask: Mask) -> Tensor:
        """The keys that belong to each query by their positions, causality and padding left out.

        Returns:
            Bool, broadcastable to (B, H, T, S).
        """

    @abstractmethod
    def _pieces(self, arranged: Arranged, position: Position) -> Tensor:
        """The context (B, H, N, Dh) of a whole sequence, with no tensor of N x N."""

    def forward(
        self,
        query: Tensor,
        new: KeysValues,
        mask: Mask,
        position: Position,
        cache: Cache | None = None,
    ) -> Tensor:
        steps = query.shape[2]
        q = position.rotate(query, mask.query_positions)
        rotated = position.rotate(new.keys, mask.key_positions[..., -steps:])
        new, past = KeysValues(rotated, new.values), Past(rotated, new.values, None)
        whole = True
        if cache is not None:
            assert isinstance(cache, GrowingCache)
            whole = cache.length == 0 and steps > 1 and mask.extra is None
            past = cache.append(new)
        if not whole:
            return self._dense(q, past, mask, position)
        if self.observer is not None:
            observed = self._dense(q, past, mask, position)
            if self.keep_weight_gradients:
                return observed
        return self._whole(q, new, mask, position)

    def _dense(self, q: Tensor, past: Past, mask: Mask, position: Position) -> Tensor:
        """Over all of the past, under the pattern written out as a mask."""
        beams = q.shape[0] // past.keys.shape[0]
        if beams > 1:
            q, mask = fold_beams(q, beams), fold_mask(mask, beams, past.ancestry)
        mask = mask.joined(self.pattern(mask))
        context = self._attend(q, past.keys, past.values, mask, position)
        return context if beams == 1 else unfold_beams(context, beams)

    def _whole(self, q: Tensor, new: KeysValues, mask: Mask, position: Position) -> Tensor:
        rows, _, steps, _ = q.shape
        real = mask.real
        if real is None:
            real = torch.ones(rows, steps, dtype=torch.bool, device=q.device)
        real = real.repeat_interleave(rows // real.shape[0], dim=0)  # (B, S) -> (B*K, S)
        order = real_first(real)
        extra = mask.extra
        if extra is not None:
            extra = torch.broadcast_to(extra, (rows, extra.shape[-3], steps, steps))
        if order is not None:
            real = real.gather(1, order)
            q, new = _gather(q, order), KeysValues(*(_gather(x, order) for x in new))
            extra = None if extra is None else _gather(_gather(extra, order).mT, order).mT
        blank = -steps % self.unit
        q, keys, values = (F.pad(x, (0, 0, 0, blank)) for x in (q, *new))
        extra = None if extra is None else F.pad(extra, (0, blank, 0, blank))
        arranged = Arranged(q, keys, values, F.pad(real, (0, blank)), extra, mask.causal)
        context = self._pieces(arranged, position)[:, :, :steps]
        return context if order is None else _gather(context, order.argsort(dim=1))


def _gather(x: Tensor, order: Tensor) -> Tensor:
    """x (B, X, S, M) with its tokens in `order` (B, S)."""
    return x.gather(2, order[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[3]))
