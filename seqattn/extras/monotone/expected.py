"""Monotonic attention by expected alignments, hard at inference, and its chunks (MoChA)."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from annotated_types import Ge, Le
from torch import Tensor, nn

from seqattn.attention.alignment import Alignment, Annotations, Past
from seqattn.attention.scores import AdditiveScore
from seqattn.checking import Count, NotNegative, Width
from seqattn.ops.precision import wide

Offset = Annotated[float, Ge(-1_000), Le(1_000)]


class Energy(AdditiveScore):
    """g v^T / |v| tanh(W_h h_i + W_s s + b) + r (Raffel et al. 2017, arXiv 1704.00784).

    Args: as in `AdditiveScore`, and `offset`, the initial r; g starts at 1 / sqrt(A).
    """

    def __init__(
        self, query_dim: int, memory_dim: int, dim: int | None = None, offset: float = 0.0
    ) -> None:
        super().__init__(query_dim, memory_dim, dim)
        width = dim or query_dim
        self.bias = nn.Parameter(torch.zeros(width))
        self.gain = nn.Parameter(torch.full((1,), width**-0.5))
        self.offset = nn.Parameter(torch.full((1,), float(offset)))

    def project(self, memory: Tensor) -> Tensor:
        return super().project(memory) + self.bias

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        scale = self.gain / self.v.weight.norm().clamp(min=torch.finfo(torch.float32).tiny)
        return wide(super().forward(query, keys)) * wide(scale) + wide(self.offset)


class Monotonic(Alignment):
    """Monotonic attention: from where it stood, it moves on until it chooses an annotation.

    Raffel et al. 2017 (arXiv 1704.00784). In training the weights are the probabilities alpha of
    standing at each annotation, where a step chooses an annotation that it reaches
    with probability p = sigmoid(e), e an energy with Gaussian noise. In eval mode it chooses the
    first with e > 0, from the last choice on, and a step's context is that annotation, the same
    step by step and over a complete target. A step that passes the end of the source has zeros
    for its context, and so have all later steps: weights sum to at most 1.

    Time T * S * A, in T steps of log S parts that cannot be joined; remembers S numbers for each
    hypothesis.

    Args:
        query_dim: width of the decoder's state.
        memory_dim: width M of an annotation.
        dim: width A inside the tanh; None for `query_dim`.
        noise: standard deviation of the noise on energies in training, which makes p close to 0
            or 1; 1 in the paper.
        offset: initial r of `Energy`; -1 in the paper for short sources, -4 for long ones.
    """

    attends_first = True
    normalized = False
    remembers = True
    exceptions: ClassVar[Mapping[str, str]] = {"gradients": "the choice in eval mode has none"}

    def __init__(
        self,
        query_dim: int,
        memory_dim: int,
        dim: Width | None = None,
        noise: NotNegative = 1.0,
        offset: Offset = -1.0,
    ) -> None:
        super().__init__(memory_dim)
        self.energy = Energy(query_dim, memory_dim, dim, offset)
        self.noise = noise

    def project(self, memory: Tensor, real: Tensor) -> Annotations:
        return Annotations.of(self.energy.project(memory), memory, real)

    def first_past(self, source: Annotations, beams: int) -> Past:
        return (first_token(source, beams),)

    def weights(self, query: Tensor, source: Annotations, steps: Tensor) -> Tensor:
        return self.weigh(query, source, steps, self.first_past(source, query.shape[1]))[0]

    def weigh(
        self, query: Tensor, source: Annotations, steps: Tensor, past: Past
    ) -> tuple[Tensor, Past]:
        alpha = self.chosen(query, source, past[0])
        return alpha, (alpha.flatten(0, 1),)

    def chosen(self, query: Tensor, source: Annotations, past: Tensor) -> Tensor:
        """Return alpha (B, K, S). Args: as in `weigh`; past: (B*K, S) alpha of the last step."""
        energies = self.energy(query, source.keys)
        if self.training:
            stop = (energies + self.noise * torch.randn_like(energies)).sigmoid()
        else:
            stop = (energies > 0).to(energies.dtype)
        stop = stop * source.real[:, None]  # passes over padding
        return stop * reached(past.view(stop.shape), 1 - stop)


def first_token(source: Annotations, beams: int) -> Tensor:
    """Return weights (B*K, S) of 1 on each source's first token, in at least float32."""
    first = source.real & (source.positions == 0)
    return wide(first.to(source.values.dtype)).repeat_interleave(beams, dim=0)


def reached(past: Tensor, passing: Tensor) -> Tensor:
    """Return the probability of reaching each annotation: q_j = passing_{j-1} q_{j-1} + past_j.

    The sum in the expected alignment of Raffel et al. 2017 (arXiv 1704.00784), whose closed form
    divides by products that underflow; here log S doublings of the recurrence, without a logarithm
    or a division, and exact where `passing` is 0 or 1.

    Args:
        past: (..., S) probability of having stood at each annotation.
        passing: (..., S) probability of passing it.
    """
    total, factor = past, F.pad(passing[..., :-1], (1, 0))
    reach = 1
    while reach < past.shape[-1]:
        total = total + factor * F.pad(total[..., :-reach], (reach, 0))
        factor = factor * F.pad(factor[..., :-reach], (reach, 0))
        reach *= 2
    return total


class MoChA(Monotonic):
    """Monotonic chunkwise attention: a softmax over the annotations up to the chosen one.

    Chiu and Raffel 2018 (arXiv 1712.05382): the weights are the expectation over alpha of a softmax
    over the `chunk` annotations that end at the chosen one; with 1, `Monotonic`. Costs twice as
    much, and S * chunk numbers a step.

    Args and the rest as in `Monotonic`, plus:
        chunk: w, annotations in a chunk.
    """

    def __init__(
        self,
        query_dim: int,
        memory_dim: int,
        dim: Width | None = None,
        noise: NotNegative = 1.0,
        offset: Offset = -1.0,
        chunk: Count = 2,
    ) -> None:
        super().__init__(query_dim, memory_dim, dim, noise, offset)
        self.chunk = chunk
        self.chunk_energy = AdditiveScore(query_dim, memory_dim, dim)

    def project(self, memory: Tensor, real: Tensor) -> Annotations:
        keys = self.energy.project(memory), self.chunk_energy.project(memory)
        return Annotations.of(torch.cat(keys, dim=-1), memory, real)

    def weigh(
        self, query: Tensor, source: Annotations, steps: Tensor, past: Past
    ) -> tuple[Tensor, Past]:
        keys, chunk_keys = source.keys.chunk(2, dim=-1)
        alpha = self.chosen(query, source._replace(keys=keys), past[0])
        energies = wide(self.chunk_energy(query, chunk_keys))
        weights = in_chunks(alpha, energies, source.real[:, None], self.chunk)
        return weights, (alpha.flatten(0, 1),)


def in_chunks(chosen: Tensor, energies: Tensor, real: Tensor, width: int) -> Tensor:
    """Return the weights (..., S) of the chunks that end at annotations chosen with `chosen`.

    Args:
        chosen: (..., S) probabilities, 0 on padding.
        energies: (..., S), in at least float32.
        real: bool, broadcastable to them, True on tokens.
        width: annotations in a chunk.
    """
    width = min(width, energies.shape[-1])
    least = torch.finfo(energies.dtype).min / 4
    energies = energies.masked_fill(~real, least)
    chunks = F.pad(energies, (width - 1, 0), value=least).unfold(-1, width, 1)  # (..., S, w)
    totals = chunks.logsumexp(dim=-1)

    def ending(x: Tensor) -> Tensor:
        """Return x of the chunks that contain each annotation, (..., S, w)."""
        return F.pad(x, (0, width - 1)).unfold(-1, width, 1)

    shares = (energies[..., None] - ending(totals)).clamp(max=0).exp()
    return (ending(chosen) * shares).sum(dim=-1) * real
