"""Self-attention with every row's tokens first, so that nothing depends on padding."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from seqattn.attention.cache import KeysValues
from seqattn.attention.masks import Mask, real_first


@dataclass(frozen=True)
class Ordered:
    """Queries, keys and values of the same T tokens; without a past, slot i holds real position i.

    Args:
        query: (B, H, T, Dh), turned by nothing yet, as the rest.
        keys: (B, G, T, Dh).
        values: (B, G, T, Dh).
        mask: as it was given, in the order that was.
        real: (B, T) bool, None where all are.
        order: (B, T), where each stood among the new ones; None where it stands.
    """

    query: Tensor
    keys: Tensor
    values: Tensor
    mask: Mask
    real: Tensor | None = None
    order: Tensor | None = None

    @property
    def length(self) -> int:
        """T."""
        return self.query.shape[2]

    @property
    def places(self) -> Tensor:
        """(T,) whole numbers from 0."""
        return torch.arange(self.length, device=self.query.device)

    def part(self, start: int, end: int) -> "Ordered":
        """Some of the tokens, in the order they have."""
        return replace(
            self,
            query=self.query[:, :, start:end],
            keys=self.keys[:, :, start:end],
            values=self.values[:, :, start:end],
            real=None if self.real is None else self.real[:, start:end],
        )

    def back(self, x: Tensor) -> Tensor:
        """Rows of x (B, H, T, M) as they stood before."""
        return x if self.order is None else _moved(x, self.order.argsort(dim=1))

    def as_they_stood(self, weights: Tensor) -> Tensor:
        """Weights (B, H, T, L) over all tokens so far, rows and columns as they stood before."""
        keys = self._order_of_keys
        return self.back(weights if keys is None else _moved(weights.mT, keys.argsort(dim=1)).mT)

    def as_ordered(self, weights: Tensor) -> Tensor:
        """Undoes `as_they_stood`, for any tensor (B, H, T, L)."""
        keys = self._order_of_keys
        weights = weights if keys is None else _moved(weights.mT, keys).mT
        return weights if self.order is None else _moved(weights, self.order)

    @property
    def _order_of_keys(self) -> Tensor | None:
        order = real_first(self.mask.real)
        return None if order is None else self._rows(order)

    def allowed(self, at: Tensor, around: Tensor, near: Tensor | None) -> Tensor | None:
        """What blocks of queries may see, in a pass without a past.

        Args:
            at: (blocks, c), places of the queries.
            around: (blocks, W), places of the keys.
            near: bool (blocks, c, W), what the pattern allows; None where all.

        Returns:
            Bool (B * blocks, 1 or H, c, W); None where all may be seen.
        """
        allowed = None if near is None else near[None]
        if self.real is not None:
            allowed = _both(allowed, self.real[:, around][:, :, None])
        if self.mask.causal and self.mask.real is not None and self.order is not None:
            # padding among the tokens is asked too, and sees no more than what stood before it
            before = self._rows(self.mask.real.long().cumsum(dim=1) - 1).gather(1, self.order)
            allowed = _both(allowed, around[:, None] <= before[:, at][..., None])
        if allowed is not None:
            allowed = allowed[:, :, None]  # (B or 1, blocks, 1, c, W)
        if self.mask.extra is not None:
            extra = self.mask.extra.expand(self.query.shape[0], -1, self.length, self.length)
            cut = self.as_ordered(extra)[:, :, at[..., None], around[:, None]]
            allowed = _both(allowed, cut.transpose(1, 2))  # (B, H or 1, blocks, c, W)
        if allowed is None or allowed.shape[1] == 1 == allowed.shape[0]:
            return allowed if allowed is None else allowed[0]
        return allowed.expand(self.query.shape[0], -1, -1, -1, -1).flatten(0, 1)

    def _rows(self, x: Tensor) -> Tensor:
        """(B, ...) -> (B*K, ...), as the beams of a sentence share their padding."""
        return x.repeat_interleave(self.query.shape[0] // x.shape[0], dim=0)


def in_order(query: Tensor, new: KeysValues, mask: Mask) -> Ordered:
    """Queries (B*K, H, T, Dh), and their keys and values, with every row's tokens first."""
    tokens = Ordered(query, new.keys, new.values, mask)
    if mask.real is None:
        return tokens
    real = tokens._rows(mask.real[:, -tokens.length :])
    order = real_first(real)
    if order is None:
        return replace(tokens, real=real)
    query, keys, values = (_moved(x, order) for x in (query, *new))
    return Ordered(query, keys, values, mask, real.gather(1, order), order)


def _moved(x: Tensor, order: Tensor) -> Tensor:
    """Rows of x (B, H, T, M) in `order` (B, T)."""
    return x.gather(2, order[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[3]))


def _both(one: Tensor | None, other: Tensor) -> Tensor:
    return other if one is None else one & other
