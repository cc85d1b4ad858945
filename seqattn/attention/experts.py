"""Mixture of attention experts: a router chooses heads for each token."""

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
    """Coefficients of the losses that keep a router from using only a few experts.

    Args:
        load: coefficient of the load-balance loss, at least 0; 0.01 in the paper.
        z: coefficient of the z-loss, which keeps the router's logits small, at least 0; 0.001 in
            the paper.
    """

    load: NotNegative = 0.01
    z: NotNegative = 0.0


class Routes(NamedTuple):
    """The router's choice of experts for each token."""

    gates: Tensor  # (B, T, H), in at least float32; sum to 1 over the chosen experts
    chosen: Tensor  # (B, T, H) expert indices, most probable first
    logits: Tensor  # (B, T, E)


class MixtureOfAttention(KernelAttention):
    """Attention with k of E experts, which a router picks for each token (Zhang et al. 2022).

    Mixture of attention heads (arXiv 2210.05144): an expert is a head with its own query and
    output projections; all share a single key and value head. The output is the experts' mean,
    weighted by the router's probabilities over the chosen ones; as published, their normalizer is
    a constant in the backward pass, so that the router learns even with one expert per token. No
    expert has a capacity limit, so neither padding nor the rest of a batch affects a token.

    Time and memory are those of a kernel with H = k query heads and one key head; the query and
    output projections are one matrix product each over all experts, E/k times those of
    multi-head attention. The cache holds 2 * Dh numbers per token. Bidirectional, causal, cross and
    incremental if the kernel is. Per-head parameters of a kernel or position scheme are assigned by
    an expert's rank for a token, most probable first, not by expert.

    Args:
        query_dim: width of the queries' sequence and of the output.
        memory_dim: width of the sequence of keys and values.
        num_heads: experts k per token, its query heads H; divides query_dim.
        num_experts: total experts E, at least num_heads.
        kernel: builds the kernel from the shape of the heads, with one key head.
        dropout: share of attention weights dropped in training.
        balance: coefficients of the auxiliary losses; None for the default.

    Raises:
        UserError: the counts are incompatible with each other or with the kernel.
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
                f"attention.num_experts must be at least attention.num_heads ({num_heads}), the "
                f"number of experts per token, got {num_experts}"
            )
        self.num_experts = num_experts
        self.balance = balance or Balance()
        width = query_dim // num_heads
        self.exceptions = {
            **self.kernel.exceptions,
            "gradients": "gates are divided by their detached sum, as published",
        }
        if self.abilities.shared:
            raise UserError(f"experts do not support {self.name}, which shares queries and keys")
        self.router = Linear(query_dim, num_experts, bias=False)
        self.query = Linear(query_dim, num_experts * width)
        self.key = Linear(memory_dim, width)
        self.value = Linear(memory_dim, width)
        self.output = Linear(num_experts * width, query_dim)
        self._initialize()

    def _initialize(self) -> None:
        """Apply Xavier initialization; for experts, with the fans of multi-head attention."""
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
        """Attend as in `Attention.forward`; weights are the gate-weighted mean over heads."""
        routes = self.route(query)
        width = self.query.out_features // self.num_experts
        index = routes.chosen[..., None].expand(-1, -1, -1, width)  # (B, T, H, Dh)
        every = self.query(query).unflatten(2, (self.num_experts, -1))  # (B, T, E, Dh)
        q = every.gather(2, index).transpose(1, 2)
        context, weights = self.kernel(q, keys_values, mask, position, cache, need_weights)
        if weights is not None:
            counted = routes.gates
            if self.gates is not None:  # a removed expert shows no weights
                counted = counted * self.gates.clamp(min=0)[routes.chosen]
            # differentiate through the normalization, so that the mean stays a distribution
            counted = counted / counted.sum(dim=-1, keepdim=True).clamp(min=1e-30)
            weights = (weights * counted.transpose(1, 2)[..., None]).sum(dim=1)
        # even if not collected: a recomputed layer must repeat the same operations
        if self.training:
            loss = self._auxiliary(routes, mask.real_queries)
            if self.collector is not None:
                self.collector(loss)
        gated = context.transpose(1, 2) * routes.gates[..., None].to(context.dtype)
        spread = torch.zeros_like(every, dtype=gated.dtype).scatter(2, index, gated)
        factors = self.head_factors(spread)
        if factors is not None:
            spread = spread * factors.unsqueeze(-2)[..., None]  # (B, 1, E, 1) or (1, E, 1)
        return AttentionOutput(self.output(spread.flatten(2)), weights)  # (B, T, E*Dh) -> (B, T, D)

    def route(self, query: Tensor) -> Routes:
        """Choose the experts of each token (B, T, D), in float32, as rounding could change them."""
        with torch.autocast(query.device.type, enabled=False):
            logits = F.linear(wide(query), wide(self.router.weight))
        best, chosen = logits.softmax(dim=-1).topk(self.num_heads, dim=-1)
        return Routes(best / best.sum(dim=-1, keepdim=True).detach(), chosen, logits)

    def _auxiliary(self, routes: Routes, real: Tensor | None) -> AuxiliaryLoss:
        """Compute load-balance and z-loss over the real tokens of a batch.

        Args:
            routes: routes of the queries.
            real: (B, T) bool, True for queries that are tokens; None if all are.
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
    """Collect the auxiliary losses of the attentions in `model` during training.

    Add them to the loss of a custom training loop:

        with auxiliary_losses(model) as losses:
            loss = cross_entropy(model(source, target), ...)
        loss = loss + sum(part.loss for part in losses)

    Leave the block before the backward pass: with activation checkpointing, that pass calls the
    layers again and would list each loss twice.

    Args:
        model: any module that contains attentions, in training mode; else nothing is collected.

    Yields:
        A list to which each call adds its loss; empty if no attention has one.
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
