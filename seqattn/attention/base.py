"""Interface of attentions."""

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
    """Capabilities of a kernel; a slot rejects a kernel that lacks what it needs.

    The defaults are those of an encoder's self-attention without position hooks.

    Args:
        bidirectional: works as an encoder's self-attention.
        causal: can hide later keys from a query.
        cross: queries and keys may come from different sequences.
        incremental: can decode token by token with a cache.
        hooks: supported position hooks (`embed` always works, as it acts before attention).
        dropout: supports dropout on attention weights.
        weights: has observable weights over keys.
        normalized: each query's weights sum to 1.
        signed: weights may be negative, and so are no shares.
        shared: queries are the keys, with one projection for both.
        crop: its cache supports `Cache.crop`.
    """

    bidirectional: bool = True
    causal: bool = False
    cross: bool = False
    incremental: bool = False
    hooks: frozenset[str] = frozenset({"embed"})
    dropout: bool = False
    weights: bool = False
    normalized: bool = True
    signed: bool = False
    shared: bool = False
    crop: bool = False

    def fits(self, slot: str) -> bool:
        """Return True if the kernel fits `slot`: encoder, decoder or cross."""
        decoder = self.causal and self.incremental
        return {"encoder": self.bidirectional, "decoder": decoder, "cross": self.cross}[slot]

    @property
    def copies(self) -> bool:
        """True if its weights exist and sum to 1, so that they can serve as copy probabilities."""
        return self.cross and self.weights and self.normalized


# laws that conformance tests check for every attention, unless it declares an exception
LAWS = {
    "causality": "outputs do not depend on later tokens",
    "padding": "outputs of real tokens do not depend on padding on either side",
    "cache": "decoding token by token with a cache equals one full pass",
    "weights": "captured weights are exact, and capturing changes no output",
    "accounts": "weights times values, through the output projection, equal the output",
    "blind": "a query without visible keys gets zero context and zero gradient",
    "gradients": "gradients match finite differences in float64",
    "autocast": "outputs under bfloat16 autocast are close to float32",
    "compile": "compiles as one graph, with the same outputs",
    "learning": "a tiny model learns to reverse sequences",
}


class AuxiliaryLoss(NamedTuple):
    """A term that an attention adds to the loss, as routers do to balance their experts."""

    loss: Tensor  # scalar, per token, weighted by its coefficients; added to the task's loss
    balance: Tensor  # scalar without gradient: load balance only, 1 for uniform use of the experts


class AttentionOutput(NamedTuple):
    """Output of an attention."""

    output: Tensor  # (B*K, T, query_dim)
    weights: Tensor | None = None  # (B*K, T, S) if requested, the mean over heads; 0 on padding


class Mixer(nn.Module, ABC):
    """Interface of a layer's self-attention slot, which mixes the tokens of a sequence."""

    abilities: Abilities
    max_length: int | None = None  # longest sequence in tokens, None for no limit

    @property
    def name(self) -> str:
        """Name in error messages."""
        return type(self).__name__

    @abstractmethod
    def mix(self, x: Tensor, mask: Mask, position: Position, cache: Cache | None = None) -> Tensor:
        """Mix tokens x (B*K, T, D) with each other and the past in `cache`; append them to it."""

    @abstractmethod
    def make_cache(self, beams: int) -> Cache:
        """Return an empty cache for `beams` hypotheses per sentence."""


class Attention(Mixer):
    """Attention with its projections: queries of one sequence, keys and values of another."""

    num_heads: int
    head_dim: int | None = None  # width of a head; None without heads
    kept_heads: tuple[int, ...] | None = None  # retained by pruning; None for all
    exceptions: Mapping[str, str] = {}  # as in `Kernel`
    # (gated_heads,) factor on the context of each head; None for 1
    gates: Tensor | None = None
    drop_heads: float = 0.0  # share of heads that DropHead drops in training
    # called in training with the auxiliary loss, if there is one
    collector: Callable[[AuxiliaryLoss], None] | None = None

    @property
    def gated_heads(self) -> int:
        """Number of heads that `gates` applies to."""
        return self.num_heads

    @property
    def position_heads(self) -> int:
        """Number of heads of the position scheme, including pruned ones."""
        return self.num_heads

    def head_factors(self, rows: Tensor) -> Tensor | None:
        """Return the factors on each head's context: `gates`, and DropHead in training.

        DropHead (Zhou et al. 2020, arXiv 2004.13342) drops heads at random for each sentence, and
        scales the remaining ones by total / remaining; all factors are 0 if none remains.

        Args:
            rows: (B, ...) a tensor with the batch size, dtype and device.

        Returns:
            (gated_heads,) or (B, gated_heads); None for 1.
        """
        factors = None if self.gates is None else self.gates.to(rows.dtype)
        if not self.training or self.drop_heads == 0:
            return factors
        draws = torch.rand(len(rows), self.gated_heads, device=rows.device)
        mask = (draws >= self.drop_heads).to(rows.dtype)
        mask = mask * (self.gated_heads / mask.sum(dim=1, keepdim=True).clamp(min=1))
        return mask if factors is None else mask * factors

    @abstractmethod
    def project(self, memory: Tensor) -> KeysValues:
        """Project `memory` (B, S, memory_dim) to keys and values, once for all queries."""

    def prepared(self, source: KeysValues, mask: Mask, position: Position) -> KeysValues:
        """Return keys and values of cross-attention in the form that decoding steps read.

        Args:
            source: as returned by `project`.
            mask, position: those of all later calls.
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
        """Attend from query (B*K, T, query_dim) to `keys_values`; see `Kernel.forward`."""

    def mix(self, x: Tensor, mask: Mask, position: Position, cache: Cache | None = None) -> Tensor:
        output: Tensor = self(x, self.project(x), mask, position, cache)[0]
        return output


def length_key(model: object, limit: int) -> str:
    """Return the key of the setting that limits a model to `limit` tokens."""
    parts = model.modules() if isinstance(model, nn.Module) else ()
    mixers = (part for part in parts if isinstance(part, Mixer))
    ends = any(mixer.max_length == limit for mixer in mixers)
    return "attention.kernel.max_length" if ends else "position.max_length"


class AttentionFactory(Protocol):
    """Factory of a layer's attention."""

    def __call__(self, query_dim: int, memory_dim: int) -> Attention: ...
