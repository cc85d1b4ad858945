"""Adaptively sparse attention: alpha-entmax with an alpha for each head."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

import torch
from annotated_types import Ge, Le
from torch import Tensor, nn
from torch.autograd import Function

from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.weighted import WeightedKernel
from seqattn.attention.masks import Mask, all_at_hand
from seqattn.checking import BadValue
from seqattn.ops.memory import block_numbers
from seqattn.ops.precision import LOG2_E, wide
from seqattn.ops.second_derivatives import forbid_second_derivatives
from seqattn.positions.base import Position

Alpha = Annotated[float, Ge(1), Le(2)]
LEAST_EXCESS = 1e-12  # minimum of alpha - 1, where entmax equals softmax up to rounding
STEPS = 12  # maximum of Newton steps; three to six where convergence can be checked
BLOCK = 2**17  # numbers processed at once on a CPU, to fit its cache


class EntmaxKernel(WeightedKernel):
    """alpha-entmax(Q K^T / sqrt(Dh)) V, alpha learned per head: exact zeros where scores are low.

    alpha 1 is softmax, 2 is sparsemax (Correia, Niculae & Martins 2019, arXiv 1909.00015, eq. 2
    and 4). A learned alpha is 1 + sigmoid(a), so it stays in between. Time T*S*D and 4 to 7 passes
    over the scores, memory T*S per head (the weights are materialized), cache 2*G*Dh numbers per
    token. Bidirectional, causal, cross and incremental.

    Args:
        alpha: initial alpha of every head, 1 to 2; strictly between if learned.
        learned: train alpha.

    Raises:
        UserError: a learned alpha starts at 1 or 2.
    """

    abilities = replace(WeightedKernel.abilities, normalized=True)

    def __init__(self, shape: HeadShape, alpha: Alpha = 1.5, learned: bool = True) -> None:
        super().__init__(shape)
        if learned and alpha in (1, 2):
            reason = f"must be strictly between 1 and 2 to be learned, got {alpha}"
            raise BadValue("alpha", f"{reason}; set attention.kernel.learned=false to fix it")
        self.learned = learned
        if learned:
            self.logit = nn.Parameter(
                torch.full((shape.num_heads,), math.log((alpha - 1) / (2 - alpha)))
            )
        else:
            self.register_buffer("fixed", torch.full((shape.num_heads,), float(alpha)))

    @property
    def alpha(self) -> Tensor:
        """Alpha of each head (H,), between 1 and 2."""
        if not self.learned:
            fixed: Tensor = self.get_buffer("fixed")
            return fixed
        return 1 + wide(self.logit).sigmoid()

    def weights(self, q: Tensor, keys: Tensor, mask: Mask, position: Position) -> Tensor:
        if not torch.is_autocast_enabled(q.device.type):
            return super().weights(q, keys, mask, position)
        # rounded scores would change the support
        with torch.autocast(q.device.type, enabled=False):
            return super().weights(wide(q), wide(keys), mask, position).to(q.dtype)

    def normalize(self, scores: Tensor) -> Tensor:
        return entmax(scores, self.alpha[:, None, None])


def plain_entmax(scores: Tensor, alpha: Tensor) -> Tensor:
    """Compute `entmax` by bisection (Peters et al. 2019, arXiv 1905.05702), as the reference."""
    excess = _excess(alpha, scores)
    z = scores - scores.amax(dim=-1, keepdim=True)
    low = torch.zeros_like(z[..., :1])
    width = -torch.expm1(-excess * math.log(z.shape[-1])) / excess  # the threshold for equal scores
    for _ in range(80):
        width = width / 2
        weights = ((excess * (z - low - width)).clamp(min=-1).log1p() / excess).exp()
        low = torch.where(weights.sum(dim=-1, keepdim=True) >= 1, low + width, low)
    return weights / weights.sum(dim=-1, keepdim=True)


def entmax(scores: Tensor, alpha: Tensor) -> Tensor:
    """Return weights over the last axis of scores (..., S) that sum to 1, low ones exactly 0.

    Computed in at least float32, on a CPU in blocks of rows. Scores may be -inf, but each row
    needs a finite one; alpha is 1 to 2, broadcastable to (..., 1).
    """
    weights: Tensor = _Entmax.apply(scores, alpha)  # type: ignore[no-untyped-call]
    return weights


class _Entmax(Function):
    """Weights p = [1 + e (z - t)]_+ ^ (1/e) with e = alpha - 1, and t such that they sum to 1.

    This is eq. 4 of Correia et al. with its threshold written as (e t - 1)/e, which stays exact as
    e falls to 0, where p becomes exp(z - t).
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, alpha: Tensor) -> Tensor:
        z = wide(scores)
        parts = [_weights(*block) for block in _blocks(_excess(alpha, z), z)]
        weights = torch.cat(parts).view(scores.shape)
        ctx.save_for_backward(weights, alpha)
        return weights.to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
        forbid_second_derivatives("entmax does not support second derivatives")
        weights, alpha = ctx.saved_tensors
        learned = ctx.needs_input_grad[1]
        blocks = _blocks(_excess(alpha, weights), weights, gradient.to(weights.dtype))
        by_scores, by_alpha = zip(
            *(_gradients(*block, learned=learned) for block in blocks), strict=True
        )
        of_scores = torch.cat(by_scores).view(weights.shape).to(gradient.dtype)
        if not learned:
            return of_scores, None
        total = torch.cat(by_alpha).view(*weights.shape[:-1], 1).sum_to_size(alpha.shape)
        return of_scores, total.to(alpha.dtype)


def _excess(alpha: Tensor, like: Tensor) -> Tensor:
    return (alpha.to(like.dtype) - 1).clamp(min=LEAST_EXCESS)


def _blocks(excess: Tensor, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield blocks of rows: the excess (N, 1), and rows (N, S) of each tensor (..., S)."""
    shape = tensors[0].shape
    flat = [
        excess.expand(*shape[:-1], 1).reshape(-1, 1),
        *(x.reshape(-1, shape[-1]) for x in tensors),
    ]
    rows = len(flat[0])
    if not torch.compiler.is_compiling():
        rows = max(1, block_numbers(tensors[0], BLOCK) // shape[-1])
    return zip(*(x.split(rows) for x in flat), strict=True)


def _weights(excess: Tensor, scores: Tensor) -> Tensor:
    """Return the weights (N, S) of a block, by Newton's method on (sum of p)^e.

    This is a norm of [1 + e (z - t)]_+, so it is convex in t and nearly linear, even more so for e
    near 0 or equal scores: a step from the left never passes the root.
    """
    z = (scores - scores.amax(dim=-1, keepdim=True)).mul_(excess)
    slope_power = (1 / excess - 1).clamp(min=1e-30) * LOG2_E  # not 0, as 0 * -inf is NaN
    near = torch.finfo(z.dtype).eps ** 0.5  # after a step this small the next one is below rounding
    threshold = torch.zeros_like(excess)  # e t
    for _ in range(STEPS):
        below, slope = _slope(z, threshold, slope_power)
        slopes = slope.sum(dim=-1, keepdim=True)
        total = slopes + slope.mul_(below).sum(dim=-1, keepdim=True)
        step = total / slopes * torch.expm1(-excess * total.log())
        threshold = threshold - step
        if all_at_hand(step.abs() < near):
            break
    below, slope = _slope(z, threshold, slope_power)
    weights = slope.addcmul_(slope, below)
    return weights.div_(weights.sum(dim=-1, keepdim=True))


def _slope(z: Tensor, threshold: Tensor, power: Tensor) -> tuple[Tensor, Tensor]:
    """Return u - 1 and p / u for u = [1 + e (z - t)]_+; p / u is dp/dz at fixed t."""
    below = (z - threshold).clamp_(min=-1)
    return below, below.log1p().mul_(power).exp2_()


def _gradients(
    excess: Tensor, weights: Tensor, gradient: Tensor, *, learned: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of a block's scores (N, S), and of its alpha per row (N, 1)."""
    logs = weights.clamp(min=1e-30).log_()  # log(0) is ten times as slow
    slope = (logs * ((1 - excess) * LOG2_E)).exp2_().mul_(weights.sign())  # p^(2 - alpha)
    mean = (slope * gradient).sum(dim=-1, keepdim=True) / slope.sum(dim=-1, keepdim=True)
    centered = gradient - mean
    by_scores = slope.mul_(centered)
    if not learned:
        return by_scores, None
    # -dp/d(alpha) at a fixed z - t is p (log(u) + 1/u - 1) / e^2
    x = logs.mul_(excess)  # log(u)
    # a series where u is near 1, as the terms cancel
    series = x * x * (1 / 2 - x * (1 / 6 - x * (1 / 24 - x / 120)))
    bend = torch.where(x > -0.03, series, x + torch.expm1(-x)).mul_(weights).mul_(centered)
    return by_scores, -bend.sum(dim=-1, keepdim=True) / excess.square()
