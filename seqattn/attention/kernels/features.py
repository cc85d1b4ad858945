"""Performer: the softmax kernel approximated by positive random features."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from seqattn import ops
from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.linear import LinearKernel
from seqattn.checking import Count, Seed, Width
from seqattn.ops.precision import LOG2_E

# added to keys' features, whose maximum is 1 as for queries, so that no product is 0
FLOOR = 1e-26


class PerformerKernel(LinearKernel):
    """softmax(Q K^T / sqrt(Dh)) V approximated by linear attention over random features (FAVOR+).

    exp(q . k) is the mean over w ~ N(0, I) of exp(w . q - |q|^2/2) exp(w . k - |k|^2/2)
    (Choromanski et al. 2021, arXiv 2009.14794, lemma 1), here over `features` directions,
    orthogonal in blocks of Dh. Time T*r*D, memory T*r*H in training and T*D without gradients;
    causal by a scan over chunks with additional time C*T*r*H. The cache holds r*(Dh + 1)*G numbers,
    independent of the length of the past. Bidirectional, causal, cross and incremental; supports
    rotary positions as the softmax does.

    Exponents are relative to a maximum that cancels in the ratio: one per query, and a running one
    over the keys so far, so neither padding nor later keys affect it. The directions are drawn
    from the seed, stored with the weights, and shared by all heads.

    Args:
        chunk: as in `LinearKernel`.
        features: r, at least 1; the error falls as 1/sqrt(r).
        seed: seed of the directions.
    """

    projection: Tensor

    def __init__(
        self, shape: HeadShape, chunk: Count = 128, features: Width = 256, seed: Seed = 0
    ) -> None:
        super().__init__(shape, chunk)
        self.register_buffer("projection", orthogonal_draw(features, shape.head_dim, seed))

    def map_queries(self, query: Tensor, scale: float) -> Tensor:
        features, _ = positive_features(query, self._directions(query, scale), 0.0)
        return features

    def map_keys(self, keys: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        features, top = positive_features(keys, self._directions(keys, scale), scale)
        return features + FLOOR, top - keys.detach().square().sum(dim=-1) * (scale / 2)

    def _directions(self, x: Tensor, scale: float) -> Tensor:
        return self.projection.to(x.dtype) * scale**0.5  # (r, Dh)


def positive_features(x: Tensor, directions: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Return exp(w . x - top) for directions w (r, Dh), and top, the largest w . x of each x.

    Args:
        x: (..., Dh).
        directions: (r, Dh).
        scale: the gradient (not the value) of the features is that of
            exp(w . x - top - scale |x|^2 / 2), with top as a constant.

    Returns:
        (..., r), and top (...) without gradient.
    """
    if torch.compiler.is_compiling():
        return plain_features(x, directions, scale)
    mapped: tuple[Tensor, Tensor] = _Features.apply(x, directions, scale)  # type: ignore[no-untyped-call]
    return mapped


def plain_features(x: Tensor, directions: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Compute `positive_features` by differentiable operations, as the reference."""
    powers = F.linear(x, directions * LOG2_E)
    half_norm = x.square().sum(dim=-1, keepdim=True) * (scale / 2 * LOG2_E)
    top = powers.detach().amax(dim=-1, keepdim=True)
    features = (powers - (top + (half_norm - half_norm.detach()))).exp2()
    return features, top[..., 0] / LOG2_E


class _Features(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, directions: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        rows = x.reshape(-1, x.shape[-1])
        powers = ops.product(rows, (directions * LOG2_E).T).view(*x.shape[:-1], -1)
        top = powers.amax(dim=-1, keepdim=True)
        features = powers.sub_(top).exp2_()
        top = top[..., 0] / LOG2_E
        ctx.save_for_backward(x, directions, features)
        ctx.scale = scale
        ctx.mark_non_differentiable(top)
        return features, top

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        x, directions, features = ctx.saved_tensors
        gradient = gradient * features
        of_x = ops.product(gradient.flatten(0, -2), directions).view_as(x)
        if ctx.scale:
            of_x = of_x - x * (gradient.sum(dim=-1, keepdim=True) * ctx.scale)
        return of_x, None, None


def orthogonal_draw(features: int, head_dim: int, seed: Seed) -> Tensor:
    """Draw directions (features, head_dim), each normal, orthogonal within blocks of head_dim.

    They are rows of random rotations, scaled to the lengths of independent normal vectors.
    """
    source = torch.Generator().manual_seed(seed)
    blocks = []
    for _ in range(-(-features // head_dim)):
        normal = torch.randn(head_dim, head_dim, generator=source, dtype=torch.float64)
        rotation, triangle = torch.linalg.qr(normal)
        # makes the distribution of rotations uniform
        rotation = rotation * triangle.diagonal().sign()
        lengths = torch.randn(head_dim, head_dim, generator=source, dtype=torch.float64).norm(dim=1)
        blocks.append(rotation.T * lengths[:, None])
    return torch.cat(blocks)[:features].float()
