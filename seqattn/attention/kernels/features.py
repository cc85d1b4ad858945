"""Performer: the softmax kernel through positive random features."""

import torch
from torch import Tensor

from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.linear import LinearKernel
from seqattn.checking import Count, Seed, Width, checked

# added to keys' features, of which 1 is the largest, as it is of each query's: no product is 0
FLOOR = 1e-26


@checked
class PerformerKernel(LinearKernel):
    """softmax(Q K^T / sqrt(Dh)) V approximated by linear attention over random features (FAVOR+).

    exp(q . k) is the mean over w ~ N(0, I) of exp(w . q - |q|^2/2) exp(w . k - |k|^2/2)
    (Choromanski et al. 2021, arXiv 2009.14794, lemma 1), here over `features` directions,
    orthogonal in blocks of Dh. Time T*r*D, memory T*r*H in training and T*D without gradients;
    causal by a scan over chunks with C*T*r*H more time. The cache holds r*(Dh + 1)*G numbers in
    all, however long the past. Bidirectional, causal, cross and incremental; takes rotary
    positions as the softmax does.

    Exponents are taken against a maximum that cancels in the ratio: each query's own, and a
    running one over the keys so far, so that neither padding nor later keys have a part in it. The
    draw is fixed by the seed, held with the weights, and the same in all heads.

    Args:
        chunk: as `LinearKernel`'s.
        features: r, at least 1; the error falls as 1/sqrt(r).
        seed: of the draw.
    """

    projection: Tensor

    def __init__(
        self, shape: HeadShape, chunk: Count = 128, features: Width = 256, seed: Seed = 0
    ) -> None:
        super().__init__(shape, chunk)
        self.register_buffer("projection", orthogonal_draw(features, shape.head_dim, seed))

    def map_queries(self, query: Tensor, scale: float) -> Tensor:
        logs = query @ self._directions(query, scale)
        return (logs - logs.detach().amax(dim=-1, keepdim=True)).exp()

    def map_keys(self, keys: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        logs = keys @ self._directions(keys, scale)
        top = logs.detach().amax(dim=-1, keepdim=True)
        half_norm = keys.square().sum(dim=-1, keepdim=True) * (scale / 2)  # (B, G, S, 1)
        constant = half_norm.detach()
        # the norm's value stands in the log scale, its gradient in the features
        mapped = (logs - (top + (half_norm - constant))).exp() + FLOOR
        return mapped, (top - constant)[..., 0]

    def _directions(self, x: Tensor, scale: float) -> Tensor:
        return self.projection.to(x.dtype).T * scale**0.5  # (Dh, r)


def orthogonal_draw(features: int, head_dim: int, seed: Seed) -> Tensor:
    """Directions (features, head_dim), each normal, orthogonal within blocks of head_dim.

    A random rotation's rows, each stretched to the length of an independent normal vector.
    """
    source = torch.Generator().manual_seed(seed)
    blocks = []
    for _ in range(-(-features // head_dim)):
        normal = torch.randn(head_dim, head_dim, generator=source, dtype=torch.float64)
        rotation, triangle = torch.linalg.qr(normal)
        rotation = rotation * triangle.diagonal().sign()  # else not uniform over rotations
        lengths = torch.randn(head_dim, head_dim, generator=source, dtype=torch.float64).norm(dim=1)
        blocks.append(rotation.T * lengths[:, None])
    return torch.cat(blocks)[:features].float()
