"""What every attention offers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from seqattn.attention.cache import Cache, KeysValues
from seqattn.attention.masks import Mask
from seqattn.positions.base import Position


@dataclass(frozen=True)
class Abilities:
    """What a kernel can do; a slot refuses a kernel that lacks what it needs.

    By default it serves an encoder's self-attention, without positions of its own.

    Args:
        bidirectional: fits an encoder's self-attention.
        causal: can hide what comes after a query.
        cross: queries and keys may come from different sequences.
        incremental: can decode token by token through its cache.
        hooks: the position hooks that it takes (`embed` always passes, it acts before attention).
        dropout: can drop attention weights in training.
        weights: has weights over keys to show.
        normalised: each query's weights sum to 1.
        shared: queries are the keys, so that one projection makes both.
        crop: its cache can forget the last tokens, as `Cache.crop` does.
    """

    bidirectional: bool = True
    causal: bool = False
    cross: bool = False
    incremental: bool = False
    hooks: frozenset[str] = frozenset({"embed"})
    dropout: bool = False
    weights: bool = False
    normalised: bool = True
    shared: bool = False
    crop: bool = False

    def fits(self, slot: str) -> bool:
        """Whether it can serve `slot`: encoder, decoder or cross."""
        decoder = self.causal and self.incremental
        return {"encoder": self.bidirectional, "decoder": decoder, "cross": self.cross}[slot]

    @property
    def copies(self) -> bool:
        """Whether its weights over a source can be probabilities: they are there and sum to 1."""
        return self.cross and self.weights and self.normalised


# what the conformance tests hold every attention to, unless it declares an exception
LAWS = {
    "causality": "no output depends on a later token",
    "padding": "real outputs do not depend on padding, on either side",
    "cache": "token by token through the cache equals one pass",
    "weights": "captured weights are the true ones and change no output",
    "accounts": "weights times values, through the output projection, make up the output",
    "blind": "a query with nothing to see gets zero context and zero gradient",
    "gradients": "gradients agree with finite differences in float64",
    "autocast": "runs under bfloat16 autocast, close to float32",
    "compile": "compiles as one graph and gives the same",
    "learning": "a tiny model learns to reverse",
}


class AuxiliaryLoss(NamedTuple):
    """What an attention adds to the loss of a batch, as routers do to keep all experts in use."""

    loss: Tensor  # scalar, per token, weighted by its coefficients: to be added to the task's loss
    balance: Tensor  # scalar without gradient: load-balance alone, 1 where experts are used alike


class AttentionOutput(NamedTuple):
    """What an attention makes of queries."""

    output: Tensor  # (B*K, T, query_dim)
    weights: Tensor | None = None  # (B*K, T, S) where asked for, the mean over heads; 0 on padding


class Mixer(nn.Module, ABC):
    """What a layer asks of its self-attention slot: to mix the tokens of a sequence."""

    abilities: Abilities
    max_length: int | None = None  # longest sequence in tokens, None where there is no limit

    @property
    def name(self) -> str:
        """What errors call it."""
        return type(self).__name__

    @abstractmethod
    def mix(self, x: Tensor, mask: Mask, position: Position, cache: Cache | None = None) -> Tensor:
        """Lets tokens x (B*K, T, D) see each other, and the past that `cache` adds them to."""

    @abstractmethod
    def make_cache(self, beams: int) -> Cache:
        """An empty cache for `beams` hypotheses per sentence."""


class Attention(Mixer):
    """Attention with its projections: queries from one sequence, keys and values from another."""

    num_heads: int
    kept_heads: tuple[int, ...] | None = None  # those that pruning left; None for all
    exceptions: Mapping[str, str] = {}  # as a kernel's
    # (gated_heads,) what the context of each head is multiplied by; None for 1
    gates: Tensor | None = None
    drop_heads: float = 0.0  # share of heads that DropHead leaves out in training
    # called in training with its auxiliary loss, by those that have one, while it is set
    collector: Callable[[AuxiliaryLoss], None] | None = None

    @property
    def gated_heads(self) -> int:
        """How many heads `gates` has a number for."""
        return self.num_heads

    @property
    def position_heads(self) -> int:
        """For how many heads a position scheme is made, those that are pruned included."""
        return self.num_heads

    def head_factors(self, rows: Tensor) -> Tensor | None:
        """What the context of each head is multiplied by: `gates`, and in training DropHead.

        DropHead (Zhou et al. 2020, arXiv 2004.13342) leaves heads out, for each sentence others,
        and scales those that are left by all heads over them; none where none is left.

        Args:
            rows: (B, ...) what knows the batch's size, type and device.

        Returns:
            (gated_heads,) or (B, gated_heads); None for 1.
        """
        factors = None if self.gates is None else self.gates.to(rows.dtype)
        if not self.training or self.drop_heads == 0:
            return factors
        draws = torch.rand(len(rows), self.gated_heads, device=rows.device)
        kept = (draws >= self.drop_heads).to(rows.dtype)
        kept = kept * (self.gated_heads / kept.sum(dim=1, keepdim=True).clamp(min=1))
        return kept if factors is None else kept * factors

    @abstractmethod
    def project(self, memory: Tensor) -> KeysValues:
        """Keys and values of `memory` (B, S, memory_dim), to be made once and reused."""

    def prepared(self, source: KeysValues, mask: Mask, position: Position) -> KeysValues:
        """Keys and values of cross-attention as a search reads them, at every step.

        Args:
            source: as `project` gives them.
            mask, position: of all calls to come.
        """
        return KeysValues(source.keys.contiguous(), source.values.contiguous())

    @abstractmethod
    def forward(
        self,
        query: Tensor,
        keys_values: KeysValues,
        mask: Mask,
        position: Position,
        cache: Cache | None = None,
        need_weights: bool = False,
    ) -> AttentionOutput:
        """Attends from query (B*K, T, query_dim) to `keys_values`; the rest as a kernel's."""

    def mix(self, x: Tensor, mask: Mask, position: Position, cache: Cache | None = None) -> Tensor:
        output: Tensor = self(x, self.project(x), mask, position, cache)[0]
        return output


def length_key(model: object, limit: int) -> str:
    """The key by which a model reads at most `limit` tokens: of an attention, or of positions."""
    parts = model.modules() if isinstance(model, nn.Module) else ()
    mixers = (part for part in parts if isinstance(part, Mixer))
    ends = any(mixer.max_length == limit for mixer in mixers)
    return "attention.kernel.max_length" if ends else "position.max_length"


class AttentionFactory(Protocol):
    """Makes a layer's own attention."""

    def __call__(self, query_dim: int, memory_dim: int) -> Attention: ...
