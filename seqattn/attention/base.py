"""What every attention and every kernel offers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, NamedTuple, Protocol

from torch import Tensor, nn

from seqattn.attention.cache import Cache, KeysValues
from seqattn.attention.masks import Mask
from seqattn.positions.base import Position


@dataclass(frozen=True)
class Abilities:
    """What a kernel can do; a slot refuses a kernel that lacks what it needs.

    Args:
        bidirectional: fits an encoder's self-attention.
        causal: can hide what comes after a query.
        cross: queries and keys may come from different sequences.
        incremental: can decode token by token through its cache.
        hooks: the position hooks it takes (`embed` always passes, it acts before attention).
        dropout: can drop attention weights in training.
        weights: has weights over keys to show.
        normalised: each query's weights sum to 1.
        shared: queries are the keys, so that one projection makes both.
    """

    bidirectional: bool
    causal: bool
    cross: bool
    incremental: bool
    hooks: frozenset[str]
    dropout: bool
    weights: bool
    normalised: bool = True
    shared: bool = False

    def fits(self, slot: str) -> bool:
        """Whether it can serve `slot`: encoder, decoder or cross."""
        decoder = self.causal and self.incremental
        return {"encoder": self.bidirectional, "decoder": decoder, "cross": self.cross}[slot]

    @property
    def copies(self) -> bool:
        """Whether its weights over a source can be probabilities: they are there and sum to 1."""
        return self.cross and self.weights and self.normalised


LAWS = {
    "causality": "no output depends on a later token",
    "padding": "real outputs do not depend on padding, on either side",
    "cache": "token by token through the cache equals one pass",
    "weights": "captured weights are the true ones and change no output",
    "blind": "a query with nothing to see gets zero context and zero gradient",
    "gradients": "gradients agree with finite differences in float64",
    "autocast": "runs under bfloat16 autocast, close to float32",
    "compile": "compiles as one graph and gives the same",
    "learning": "a tiny model learns to reverse",
}
"""What the conformance tests hold every attention to, unless it declares an exception."""

Observer = Callable[[Tensor], None]


class Kernel(nn.Module, ABC):
    """Turns queries, keys and values into a context; owns no projection of them.

    Args:
        num_heads: query heads H.
        num_kv_heads: key and value heads G, dividing H.
        head_dim: width of a head Dh.
        dropout: share of attention weights dropped in training, 0 to 1.
    """

    abilities: ClassVar[Abilities]
    exceptions: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Laws of `LAWS` that cannot hold here, each with the reason in a few words."""
    max_length: int | None = None
    """Longest sequence in tokens, None where there is no limit."""

    def __init__(
        self, num_heads: int, num_kv_heads: int, head_dim: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.head_dim = head_dim
        self.dropout = dropout
        self.observer: Observer | None = None
        """Called with the true weights (B, H, T, S) of each call while they are captured."""
        self.keep_weight_gradients = False
        """Whether the context is made from the observed weights, so that gradients reach them."""

    @abstractmethod
    def forward(
        self,
        query: Tensor,
        new: KeysValues,
        mask: Mask,
        position: Position,
        cache: Cache | None = None,
    ) -> Tensor:
        """The context of each query.

        Args:
            query: (B*K, H, T, Dh); K beams of a sentence next to each other, or K = 1.
            new: keys and values; self-attention (B*K, G, T, Dh), cross-attention (B, G, S, Dh).
            mask: which keys each query may look at.
            position: the layer's position scheme.
            cache: the past of self-attention, to which `new` is added; None for none.

        Returns:
            (B*K, H, T, Dh); zeros for a query with nothing to look at.
        """

    def with_weights(
        self, query: Tensor, new: KeysValues, mask: Mask, position: Position
    ) -> tuple[Tensor, Tensor]:
        """As `forward` of cross-attention, with the weights as a result that gradients go through.

        Kernels whose `abilities.copies` is true have it.

        Args: as `forward`.

        Returns:
            The context (B*K, H, T, Dh) and the weights that made it, (B*K, H, T, S), before any
            dropout.
        """
        raise NotImplementedError(f"{type(self).__name__} gives no weights as a result")

    @abstractmethod
    def make_cache(self, beams: int) -> Cache:
        """An empty cache for `beams` hypotheses per sentence."""


class KernelFactory(Protocol):
    """Makes a layer's own kernel."""

    def __call__(
        self, num_heads: int, num_kv_heads: int, head_dim: int, dropout: float
    ) -> Kernel: ...


class AuxiliaryLoss(NamedTuple):
    """What an attention adds to the loss of a batch, as routers do to keep all experts in use."""

    loss: Tensor
    """Scalar, per token, weighted by its coefficients: to be added to the task's loss."""
    balance: Tensor
    """Scalar without gradient: the load-balance loss alone, 1 where all experts are used alike."""


class Looked(NamedTuple):
    """What cross-attention makes of queries, and where in the source it looked."""

    output: Tensor
    """(B*K, T, query_dim)."""
    weights: Tensor
    """(B*K, T, S), the mean over heads; 0 on padding."""


class Attention(nn.Module, ABC):
    """Attention with its projections: queries from one sequence, keys and values from another."""

    num_heads: int
    abilities: Abilities
    exceptions: Mapping[str, str] = MappingProxyType({})
    """As a kernel's."""
    max_length: int | None = None
    """As a kernel's."""
    collector: Callable[[AuxiliaryLoss], None] | None = None
    """Called in training with its auxiliary loss, by those that have one, while it is set."""

    @property
    def name(self) -> str:
        """What errors call it."""
        return type(self).__name__

    @abstractmethod
    def project(self, memory: Tensor) -> KeysValues:
        """Keys and values of `memory` (B, S, memory_dim), to be made once and reused."""

    @abstractmethod
    def forward(
        self,
        query: Tensor,
        keys_values: KeysValues,
        mask: Mask,
        position: Position,
        cache: Cache | None = None,
    ) -> Tensor:
        """Attends from query (B*K, T, query_dim) to `keys_values`; gives the shape of `query`."""

    def with_weights(
        self, query: Tensor, keys_values: KeysValues, mask: Mask, position: Position
    ) -> Looked:
        """As `forward` of cross-attention, with the weights as a result that gradients go through.

        Attentions whose `abilities.copies` is true have it. Args: as `forward`.
        """
        raise NotImplementedError(f"{self.name} gives no weights as a result")

    @abstractmethod
    def make_cache(self, beams: int) -> Cache:
        """An empty cache for `beams` hypotheses per sentence."""


class AttentionFactory(Protocol):
    """Makes a layer's own attention."""

    def __call__(self, query_dim: int, memory_dim: int) -> Attention: ...
