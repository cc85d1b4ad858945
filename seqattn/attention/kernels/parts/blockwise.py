"""The engine of sparse softmax attention: a pattern over positions, evaluated block by block."""

from abc import abstractmethod
from dataclasses import replace

import torch
from torch import Tensor

from seqattn.attention.base import Attended
from seqattn.attention.cache import Cache, GrowingCache, KeysValues
from seqattn.attention.kernels.parts.layouts import Layout
from seqattn.attention.kernels.parts.ordering import Piece, Tokens, moved_back
from seqattn.attention.kernels.softmax import SoftmaxKernel, fold_beams, fold_mask, unfold_beams
from seqattn.attention.masks import Mask
from seqattn.positions.base import Position


class BlockwiseKernel(SoftmaxKernel):
    """Softmax over the keys of a pattern that is made of real positions only.

    A full pass runs in blocks (`_blocks`), with nothing of T x T. Decoding reads the growing cache
    under the pattern as a mask, so a token costs time linear in the past; a first call of several
    tokens is a full pass. Observed weights are written out densely beside either.
    """

    abilities = replace(SoftmaxKernel.abilities, cross=False)

    @abstractmethod
    def pattern(self, mask: Mask) -> Tensor:
        """The keys that belong to each query by their positions, causality and padding left out.

        Returns:
            Bool, broadcastable to (B, H, T, S).
        """

    @abstractmethod
    def _unit(self, length: int, causal: bool) -> int:
        """Tokens that blocks come in multiples of."""

    @abstractmethod
    def _blocks(self, tokens: Tokens, position: Position) -> Tensor:
        """The context (B, H, N, Dh) of a whole sequence, with no tensor of N x N."""

    def forward(
        self,
        query: Tensor,
        new: KeysValues,
        mask: Mask,
        position: Position,
        cache: Cache | None = None,
        need_weights: bool = False,
    ) -> Attended:
        if cache is not None:
            return Attended(self._decoded(query, new, mask, position, cache))
        return Attended(self._whole(*self._rotated(query, new, mask, position), mask, position))

    def _decoded(
        self, query: Tensor, new: KeysValues, mask: Mask, position: Position, cache: Cache
    ) -> Tensor:
        """Over all of the past, under the pattern written out as a mask."""
        assert isinstance(cache, GrowingCache)
        first = cache.length == 0 and query.shape[2] > 1 and mask.extra is None
        q, new = self._rotated(query, new, mask, position)
        keys, values, ancestry = cache.append(new)
        beams = len(q) // len(keys)
        if first and (beams == 1 or self.observer is None):
            return self._whole(q, new, mask, position)
        if beams > 1:
            q, mask = fold_beams(q, beams), fold_mask(mask, beams, ancestry)
        mask = mask.joined(self.pattern(mask))
        context, _ = self._attend(q, KeysValues(keys, values), mask, position)
        return context if beams == 1 else unfold_beams(context, beams)

    def _whole(self, q: Tensor, new: KeysValues, mask: Mask, position: Position) -> Tensor:
        """Over the sequence itself, with no past."""
        if self.observer is not None:
            dense = mask.joined(self.pattern(mask))
            if self.keep_weight_gradients:
                return self._attend(q, new, dense, position).context
            # no context, which would draw random numbers and change the dropout of the blocks
            self.observer(self.weights(q, new.keys, dense, position))
        tokens, order = Tokens.of(q, new, mask, self._unit(q.shape[2], mask.causal))
        return moved_back(self._blocks(tokens, position)[:, :, : q.shape[2]], order)

    def _beside(self, tokens: Tokens, layout: Layout, first: int, position: Position) -> Tensor:
        """The first queries over all tokens, the others each over the keys of its block alone."""
        slots = torch.arange(tokens.query.shape[2], device=tokens.query.device)
        contexts = []
        if first:
            extra = None if tokens.extra is None else tokens.extra[:, :, :first]
            mask = Mask(slots[:first], slots, tokens.real, extra=extra)
            q = tokens.query[:, :, :first]
            contexts.append(self._fast(q, KeysValues(tokens.keys, tokens.values), mask, position))
        if first < len(slots):
            piece = Piece.of(tokens, layout)
            allowed = self._sees(piece, layout, tokens.causal)[:, None]
            allowed = allowed if piece.extra is None else allowed & piece.extra
            mask = Mask(piece.i, piece.j, extra=allowed)
            keys = KeysValues(piece.keys, piece.values)
            context = self._fast(piece.query, keys, mask, position)
            contexts.append(layout.back(context, len(tokens.query))[:, :, first:])
        return contexts[0] if len(contexts) == 1 else torch.cat(contexts, dim=2)

    def _sees(self, piece: Piece, layout: Layout, causal: bool) -> Tensor:
        """Which keys of its block each query sees, bool broadcastable to (R, c, s)."""
        return piece.real[:, None]
