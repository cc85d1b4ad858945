"""Mixture of attention experts: a router gives each token heads of its own choice."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqattn.attention.base import Attention, AttentionOutput, AuxiliaryLoss
from seqattn.attention.cache import Cache, KeysValues
from seqattn.attention.heads import KernelAttention
from seqattn.attention.kernels.base import KernelFactory
from seqattn.attention.masks import Mask
from seqattn.checking import Count, Dropout, NotNegative
from seqattn.errors import UserError
from seqattn.ops.layers import Linear
from seqattn.ops.precision import wide
from seqattn.positions.base import Position


@dataclass(frozen=True)
class Balance:
    """What keeps a router from using a few of its experts only.

    Args:
        load: coefficient of the load-balance loss, at least 0; the paper's is 0.01.
        z: coefficient of the z-loss, which keeps the router's logits small, at least 0; the
            paper's is 0.001.
    """

    load: NotNegative = 0.01
    z: NotNegative = 0.0


class Routes(NamedTuple):
    """Where the router sends each token."""

    gates: Tensor  # (B, T, H), in float32 at least; they sum to 1 over the chosen experts
    chosen: Tensor  # (B, T, H) experts, the likeliest first
    logits: Tensor  # (B, T, E)


class MixtureOfAttention(KernelAttention):
    """Each token attends with the k of E experts that a router picks (Zhang et al. 2022).

    Mixture of attention heads (arXiv 2210.05144): an expert is a head with a query and
    an output projection of its own; keys and values are one head that all share. The output is
    the experts' mean, weighted by the router's probabilities over the chosen ones; as published,
    what they are divided by is a constant in the backward pass, so that the router learns even
    where a token has one expert. No expert has a capacity limit, so that neither padding nor the
    rest of a batch changes what a token gets.

    Time and memory are those of a kernel with H = k query heads and one key head; the query and
    output projections are one matrix product each over all experts, E/k times those of
    multi-head attention. The cache holds 2 * Dh numbers a token. Bidirectional, causal, cross and
    incremental where the kernel is. What a kernel or a position scheme has per head goes by the
    rank of an expert with a token, the likeliest first.

    Args:
        query_dim: width of the queries' sequence and of the output.
        memory_dim: width of the sequence that gives keys and values.
        num_heads: experts k of each token, its query heads H; divides query_dim.
        num_experts: experts E in all, at least num_heads.
        kernel: makes the kernel from the shape of the heads, of which one is for keys.
        dropout: share of attention weights dropped in training.
        balance: coefficients of the auxiliary losses; None for the default.

    Raises:
        UserError: where the counts do not fit each other, or the kernel cannot do with them.
    """

    def __init__(
        self,
        query_dim: int,
        memory_dim: int,
        num_heads: Count,
        num_experts: Count,
        kernel: KernelFactory,
        dropout: Dropout = 0.0,
        balance: Balance | None = None,
    ) -> None:
        super().__init__(query_dim, num_heads, 1, kernel, dropout)
        if num_experts < num_heads:
            raise UserError(
                f"attention.num_experts must be at least num_heads ({num_heads}), which each token "
                f"uses, got {num_experts}"
            )
        self.num_experts = num_experts
        self.balance = balance or Balance()
        width = query_dim // num_heads
        self.exceptions = {
            **self.kernel.exceptions,
            "gradients": "the sum that gates are divided by counts as constant, as published",
        }
        if self.abilities.shared:
            raise UserError(f"{self.name} shares queries and keys, which experts cannot")
        self.router = Linear(query_dim, num_experts, bias=False)
        self.query = Linear(query_dim, num_experts * width)
        self.key = Linear(memory_dim, width)
        self.value = Linear(memory_dim, width)
        self.output = Linear(num_experts * width, query_dim)
        self._initialise()

    def _initialise(self) -> None:
        """Xavier, an expert's projections with the fans of multi-head attention's."""
        dim = self.query.in_features
        bound = (6 / (dim + dim)) ** 0.5
        for projection in (self.query, self.output):
            nn.init.uniform_(projection.weight, -bound, bound)
        for projection in (self.router, self.key, self.value):
            nn.init.xavier_uniform_(projection.weight)
        for projection in (self.query, self.key, self.value, self.output):
            nn.init.zeros_(projection.bias)

    @property
    def gated_heads(self) -> int:
        return self.num_experts

    def project(self, memory: Tensor) -> KeysValues:
        # (B, S, Dh) -> (B, 1, S, Dh)
        return KeysValues(self.key(memory).unsqueeze(1), self.value(memory).unsqueeze(1))

    def forward(
        self,
        query: Tensor,
        keys_values: KeysValues,
        mask: Mask,
        position: Position,
        cache: Cache | None = None,
        need_weights: bool = False,
    ) -> AttentionOutput:
        """As `Attention.forward`; the mean over heads is the one that the gates weight."""
        routes = self.route(query)
        width = self.query.out_features // self.num_experts
        places = routes.chosen[..., None].expand(-1, -1, -1, width)  # (B, T, H, Dh)
        every = self.query(query).unflatten(2, (self.num_experts, -1))  # (B, T, E, Dh)
        q = every.gather(2, places).transpose(1, 2)
        context, weights = self.kernel(q, keys_values, mask, position, cache, need_weights)
        if weights is not None:
            counted = routes.gates
            if self.gates is not None:  # an expert that is taken out shows nothing
                counted = counted * self.gates.clamp(min=0)[routes.chosen]
            # the backward pass must know that gates sum to 1, or the mean is no distribution there
            counted = counted / counted.sum(dim=-1, keepdim=True).clamp(min=1e-30)
            weights = (weights * counted.transpose(1, 2)[..., None]).sum(dim=1)
        if self.training:  # collected or not: a recomputed layer must do the same again
            loss = self._auxiliary(routes, mask.real_queries)
            if self.collector is not None:
                self.collector(loss)
        gated = context.transpose(1, 2) * routes.gates[..., None].to(context.dtype)
        spread = torch.zeros_like(every, dtype=gated.dtype).scatter(2, places, gated)
        factors = self.head_factors(spread)
        if factors is not None:
            spread = spread * factors.unsqueeze(-2)[..., None]  # (B, 1, E, 1) or (1, E, 1)
        return AttentionOutput(self.output(spread.flatten(2)), weights)  # (B, T, E*Dh) -> (B, T, D)

    def route(self, query: Tensor) -> Routes:
        """The experts of each token of (B, T, D); in float32, or rounding would choose others."""
        with torch.autocast(query.device.type, enabled=False):
            logits = F.linear(wide(query), wide(self.router.weight))
        best, chosen = logits.softmax(dim=-1).topk(self.num_heads, dim=-1)
        return Routes(best / best.sum(dim=-1, keepdim=True).detach(), chosen, logits)

    def _auxiliary(self, routes: Routes, real: Tensor | None) -> AuxiliaryLoss:
        """Load-balance and z-loss over the real tokens of a batch.

        Args:
            routes: of the queries.
            real: (B, T) bool, which queries are tokens; None where all are.
        """
        logits = routes.logits
        weight = logits.new_ones(logits.shape[:2]) if real is None else real.to(logits.dtype)
        tokens = weight.sum().clamp(min=1)
        probabilities = logits.softmax(dim=-1)
        used = torch.zeros_like(probabilities).scatter(2, routes.chosen, 1.0)
        share = torch.einsum("bte,bt->e", used, weight) / (tokens * self.num_heads)
        mean = torch.einsum("bte,bt->e", probabilities, weight) / tokens
        balance = self.num_experts * (share * mean).sum()
        loss = self.balance.load * balance
        if self.balance.z:
            squares = logits.logsumexp(dim=-1).square() * weight
            loss = loss + self.balance.z * squares.sum() / tokens
        return AuxiliaryLoss(loss, balance.detach())


@contextmanager
def auxiliary_losses(model: nn.Module) -> Iterator[list[AuxiliaryLoss]]:
    """Collects the losses that the attentions of `model` have in training.

    A training loop of one's own adds them to its loss:

        with auxiliary_losses(model) as losses:
            loss = cross_entropy(model(source, target), ...)
        loss = loss + sum(part.loss for part in losses)

    Leave the block before the backward pass: with activation checkpointing that pass calls the
    layers again, and each loss would be listed twice.

    Args:
        model: any module that holds attentions; in training mode, or nothing is collected.

    Yields:
        The losses, filled call by call; it stays empty where no attention has one.
    """
    attentions = [module for module in model.modules() if isinstance(module, Attention)]
    losses: list[AuxiliaryLoss] = []
    for attention in attentions:
        attention.collector = losses.append
    try:
        yield losses
    finally:
        for attention in attentions:
            attention.collector = None
