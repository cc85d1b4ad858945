"""Streaming attention: a few initial tokens and a rolling window, for unlimited generation."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.shared.groups import per_group
from seqattn.attention.kernels.weighted import WeightedKernel
from seqattn.attention.kernels.window import LocalKernel
from seqattn.attention.masks import Mask
from seqattn.checking import Count, CountOrNone
from seqattn.positions.base import Position


class StreamingKernel(LocalKernel):
    """Softmax over sinks and a rolling window (Xiao et al. 2023, arXiv 2309.17453, section 3.2).

    A query at i sees the first `sinks` tokens and the last `window`, itself included. Positions are
    those inside the cache: keys are cached unrotated and rotated at every step by their position in
    the cache, so a distance within the window is i - j, and that to a sink at j is
    min(i, sinks + window - 1) - j, never more than in training. A full pass uses the same
    distances.

    Time n*w*D and memory n*w, without n x n tensors. The cache holds 2*G*Dh numbers for each of
    sinks + window tokens, however many are generated. Causal and incremental: for decoders only,
    neither bidirectional nor cross.

    Args:
        sinks: initial tokens that are always visible, 0 for none.
        window: recent tokens, the query's own included, at least 1.
    """

    abilities = replace(LocalKernel.abilities, bidirectional=False)
    positions_in_cache = True

    def __init__(self, shape: HeadShape, sinks: CountOrNone = 4, window: Count = 256) -> None:
        super().__init__(shape, first=sinks, keys_before=window - 1, keys_after=0)

    def _caps(self, mask: Mask, hook: str, position: Position) -> bool:
        """Return True if a pass caps distances to sinks and the position scheme depends on them."""
        return self.first > 0 and mask.queries > 1 and hook in position.hooks

    def _capped(self, q: Tensor, mask: Mask, position: Position) -> tuple[Tensor, Mask]:
        """Return queries rotated to their capped positions in the cache, and the mask for these."""
        positions = self._capped_positions(mask)
        rotated = position.rotate(q, positions - mask.query_positions)
        return rotated, replace(mask, query_positions=positions)

    def _capped_positions(self, mask: Mask) -> Tensor:
        return mask.query_positions.clamp(max=self.first + self.keys_before)

    def _sinks(self, mask: Mask) -> Tensor:
        """Return which keys are sinks: bool, broadcastable to (B, H, T, S)."""
        sinks = mask.key_positions < self.first
        return sinks if sinks.dim() == 1 else sinks[:, None, None]

    def _context(
        self, q: Tensor, keys: Tensor, values: Tensor, mask: Mask, position: Position
    ) -> Tensor:
        """Compute the context of blocks and steps whose first keys are the sinks.

        Keys get an additional channel for each sink, which is 0 for all other keys; there a query
        holds its product with the sink at the capped distance. This lets the fused kernel, which
        takes one tensor of queries, score sinks with differently rotated ones.
        """
        if not self._caps(mask, "rotate", position):
            return super()._context(q, keys, values, mask, position)
        if position.hooks & {"score_term", "value_term"}:
            return WeightedKernel._context(self, q, keys, values, mask, position)
        first, width = min(self.first, keys.shape[2]), keys.shape[3]
        spare = -(-first // 8) * 8  # fused kernels need widths in multiples of 8
        scale = position.score_scale(width)  # scaled here, as float16 overflows at 65504
        capped, _ = self._capped(q, mask, position)
        scores = per_group(capped * scale, keys[:, :, :first].mT)  # (N, H, c, first)
        q = torch.cat((q, F.pad(scores, (0, spare - first))), dim=3)
        reading = torch.eye(first, width + spare, device=q.device, dtype=q.dtype)
        reading = (reading.roll(width, dims=1) / scale).expand(*keys.shape[:2], -1, -1)
        keys = torch.cat((reading, F.pad(keys[:, :, first:], (0, spare))), dim=2)
        values = F.pad(values, (0, spare))
        return super()._context(q, keys, values, mask, position)[..., :width]

    def _products(self, q: Tensor, keys: Tensor, mask: Mask, position: Position) -> Tensor:
        products = super()._products(q, keys, mask, position)
        if not self._caps(mask, "rotate", position) or q.shape[3] > self.head_dim:
            return products  # sinks have separate channels
        capped, _ = self._capped(q, mask, position)
        return torch.where(
            self._sinks(mask), super()._products(capped, keys, mask, position), products
        )

    def _score_term(self, q: Tensor, keys: Tensor, mask: Mask, position: Position) -> Tensor | None:
        term = super()._score_term(q, keys, mask, position)
        if term is None or not self._caps(mask, "score_term", position):
            return term
        # sinks are first, except in complete sequences with padding on the left
        count = mask.keys if mask.causal else min(self.first, mask.keys)
        capped, capped_mask = self._capped(q, mask, position)
        capped_mask = replace(capped_mask, key_positions=mask.key_positions[..., :count])
        far = super()._score_term(capped, keys[:, :, :count], capped_mask, position)
        assert far is not None
        far = torch.where(self._sinks(capped_mask), far, term[..., :count])
        return torch.cat((far, term[..., count:]), dim=3)

    def value_term(self, weights: Tensor, mask: Mask, position: Position) -> Tensor | None:
        if not self._caps(mask, "value_term", position):
            return super().value_term(weights, mask, position)
        sinks = self._sinks(mask)
        capped_mask = replace(mask, query_positions=self._capped_positions(mask))
        near = super().value_term(weights.masked_fill(sinks, 0.0), mask, position)
        far = super().value_term(weights.masked_fill(~sinks, 0.0), capped_mask, position)
        return near if near is None or far is None else near + far
