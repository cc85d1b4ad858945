"""Adaptively sparse attention: alpha-entmax with an alpha for each head."""

import math
from typing import Annotated, Any

import torch
from annotated_types import Ge, Le
from torch import Tensor, nn
from torch.autograd import Function

from seqattn.attention.base import HeadShape
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.attention.masks import Mask
from seqattn.checking import BadValue, checked
from seqattn.ops.precision import wide
from seqattn.positions.base import Position

Alpha = Annotated[float, Ge(1), Le(2)]
LEAST_EXCESS = 1e-12  # below this alpha - 1 counts as this: entmax then equals softmax to rounding
# bisection, then Newton's method from below: exact to rounding in float32 and float64
HALVINGS, NEWTON_STEPS = 8, 5


@checked
class EntmaxKernel(SoftmaxKernel):
    """alpha-entmax(Q K^T / sqrt(Dh)) V, alpha learned per head: exact zeros where scores are low.

    alpha 1 is softmax, 2 is sparsemax (Correia, Niculae & Martins 2019, arXiv 1909.00015, eq. 2
    and 4; the weights by bisection, Peters et al. 2019, arXiv 1905.05702). A learned alpha is
    1 + sigmoid(a), so it stays between. Time T*S*D and 14 passes over the scores, memory T*S per
    head (the weights are written out), cache 2*G*Dh numbers a token. Bidirectional, causal, cross
    and incremental.

    Args:
        alpha: every head's alpha at the start, 1 to 2; strictly between where it is learned.
        learned: whether training moves alpha.

    Raises:
        UserError: for a learned alpha at either end.
    """

    def __init__(self, shape: HeadShape, alpha: Alpha = 1.5, learned: bool = True) -> None:
        super().__init__(shape)
        if learned and alpha in (1, 2):
            reason = f"must lie strictly between 1 and 2 to be learned, got {alpha}"
            raise BadValue("alpha", f"{reason}; set learned=false to keep it there")
        self.learned = learned
        if learned:
            self.logit = nn.Parameter(
                torch.full((shape.num_heads,), math.log((alpha - 1) / (2 - alpha)))
            )
        else:
            self.register_buffer("fixed", torch.full((shape.num_heads,), float(alpha)))

    @property
    def alpha(self) -> Tensor:
        """(H,) each head's alpha, between 1 and 2."""
        if not self.learned:
            fixed: Tensor = self.get_buffer("fixed")
            return fixed
        return 1 + wide(self.logit).sigmoid()

    _fast = SoftmaxKernel._slow

    def weights(self, q: Tensor, keys: Tensor, mask: Mask, position: Position) -> Tensor:
        if not torch.is_autocast_enabled(q.device.type):
            return super().weights(q, keys, mask, position)
        with torch.autocast(q.device.type, enabled=False):  # a rounded score moves the support
            return super().weights(wide(q), wide(keys), mask, position).to(q.dtype)

    def normalise(self, scores: Tensor) -> Tensor:
        return entmax(scores, self.alpha[:, None, None])


def entmax(scores: Tensor, alpha: Tensor) -> Tensor:
    """Weights over the last axis that sum to 1, the low ones exactly 0, as scores (..., S).

    Worked out in float32 or better. A score of -inf counts for nothing, but one of each row must
    be finite; alpha is 1 to 2, broadcastable to (..., 1).
    """
    weights: Tensor = _Entmax.apply(scores, alpha)  # type: ignore[no-untyped-call]
    return weights


class _Entmax(Function):
    """Weights p = [1 + e (z - t)]_+ ^ (1/e) with e = alpha - 1, and the t that makes them sum to 1.

    This is eq. 4 of Correia et al. with its threshold written as (e t - 1)/e, which stays exact as
    e falls to 0, where p becomes exp(z - t).
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, alpha: Tensor) -> Tensor:
        excess = _excess(alpha)
        z = wide(scores)
        z = z - z.amax(dim=-1, keepdim=True)
        # t lies between 0 and where all S scores are equal
        width = -torch.expm1(-excess * math.log(z.shape[-1])) / excess
        threshold = torch.zeros_like(z[..., :1])
        for _ in range(HALVINGS):
            width = width / 2
            total = _power(z - threshold - width, excess).sum(dim=-1, keepdim=True)
            threshold = torch.where(total >= 1, threshold + width, threshold)
        for _ in range(NEWTON_STEPS):  # the sum is convex in t, so this never passes the root
            weights = _power(z - threshold, excess)
            total = weights.sum(dim=-1, keepdim=True)
            threshold = threshold + (total - 1) / _slope(weights, excess).sum(dim=-1, keepdim=True)
        weights = _power(z - threshold, excess)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        ctx.save_for_backward(weights, alpha)
        return weights.to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
        weights, alpha = ctx.saved_tensors
        excess = _excess(alpha)
        slope = _slope(weights, excess)
        exact = gradient.to(weights.dtype)
        mean = (slope * exact).sum(dim=-1, keepdim=True) / slope.sum(dim=-1, keepdim=True)
        centred = exact - mean
        by_alpha = None
        if ctx.needs_input_grad[1]:
            by_alpha = -(_bend(weights, slope, excess) * centred).sum_to_size(alpha.shape)
            by_alpha = by_alpha.to(alpha.dtype)
        return (slope * centred).to(gradient.dtype), by_alpha


def _excess(alpha: Tensor) -> Tensor:
    return (wide(alpha) - 1).clamp(min=LEAST_EXCESS)


def _power(x: Tensor, excess: Tensor) -> Tensor:
    """[1 + e x]_+ ^ (1/e), which tends to exp(x)."""
    return ((excess * x).clamp(min=-1).log1p() / excess).exp()


def _log(weights: Tensor) -> Tensor:
    return weights.clamp(min=torch.finfo(weights.dtype).tiny).log()


def _slope(weights: Tensor, excess: Tensor) -> Tensor:
    """dp/dz at a fixed threshold: p^(2 - alpha), 0 outside the support."""
    return ((1 - excess) * _log(weights)).exp().masked_fill(weights == 0, 0.0)


def _bend(weights: Tensor, slope: Tensor, excess: Tensor) -> Tensor:
    """-dp/d(alpha) at a fixed z - t = x: p (log(u) - (u - 1)/u) / e^2 with u = 1 + e x = p^e."""
    power = excess * _log(weights)
    step = power.expm1()  # u - 1
    # the two halves cancel where u is near 1: a series, whose limit is p x^2 / 2
    series = 1 / 2 - step * (2 / 3 - step * (3 / 4 - step * (4 / 5 - step * (5 / 6))))
    near = weights * (step / excess).square() * series
    far = (weights * power - slope * step) / excess.square()
    return torch.where(step > -0.01, near, far)
