"""Interface of kernels."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor, nn

from seqattn.attention.base import Abilities
from seqattn.attention.cache import Cache, KeysValues
from seqattn.attention.masks import Mask
from seqattn.attention.observation import Observable
from seqattn.positions.base import Position


@dataclass(frozen=True)
class HeadShape:
    """Sizes of an attention's heads, and dropout on their weights."""

    num_heads: int  # query heads H
    num_kv_heads: int  # key and value heads G, dividing H
    head_dim: int  # width of a head Dh
    dropout: float = 0.0  # share of attention weights dropped in training


class Attended(NamedTuple):
    """Output of a kernel."""

    context: Tensor  # (B*K, H, T, Dh); zeros for a query without visible keys
    weights: Tensor | None = None  # (B*K, H, T, S) if requested, before dropout


class Kernel(Observable, nn.Module, ABC):
    """Base of kernels, which compute a context from projected queries, keys and values.

    Options of a kernel are keyword parameters after the shape.

    Args:
        shape: sizes of the heads.
    """

    abilities: ClassVar[Abilities]
    exceptions: Mapping[str, str] = {}  # entries of `LAWS` that do not hold, each with the reason
    max_length: int | None = None  # longest sequence in tokens, None for no limit
    mixes_values: ClassVar[bool] = True  # True if a context depends on the values of other tokens
    not_matrices: ClassVar[tuple[str, ...]] = ()  # parameters of two axes that must not decay
    sees_all_up_to: int = 0  # longest sequence in tokens of which it hides nothing from a query
    unlike_heads: str = ""  # why heads cannot be pruned; "" if they can

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.num_heads = shape.num_heads
        self.num_kv_heads = shape.num_kv_heads
        self.head_dim = shape.head_dim
        self.dropout = shape.dropout

    @abstractmethod
    def forward(
        self,
        query: Tensor,
        new: KeysValues,
        mask: Mask,
        position: Position,
        cache: Cache | None = None,
        need_weights: bool = False,
    ) -> Attended:
        """Compute the context of each query.

        Args:
            query: (B*K, H, T, Dh), the K beams of a sentence adjacent, or K = 1.
            new: keys and values; self-attention (B*K, G, T, Dh), cross-attention (B, G, S, Dh).
            mask: which keys each query may attend to.
            position: the layer's position scheme.
            cache: the past of self-attention, to which `new` is appended; None without a past.
            need_weights: return the weights too, with gradients; None for kernels without
                `abilities.copies`.
        """

    def prepared(self, source: KeysValues, mask: Mask, position: Position) -> KeysValues:
        """Return keys and values with tensors the kernel precomputes. Args: as in `Attention`."""
        return source

    def make_cache(self, beams: int) -> Cache:
        """Return an empty cache for `beams` hypotheses per sentence, if incremental."""
        raise NotImplementedError


class EncoderKernel(Kernel):
    """A kernel for encoders only: bidirectional; neither causal, cross nor incremental."""

    only_padding: ClassVar[bool] = True  # the only mask it supports, as it sums over all tokens

    @abstractmethod
    def context(self, query: Tensor, new: KeysValues, mask: Mask, position: Position) -> Tensor:
        """Return the context (B, H, T, Dh). Args: as in `forward`."""

    def forward(
        self,
        query: Tensor,
        new: KeysValues,
        mask: Mask,
        position: Position,
        cache: Cache | None = None,
        need_weights: bool = False,
    ) -> Attended:
        assert not mask.causal, "only encoder self-attention is supported"
        assert mask.extra is None or not self.only_padding, "only padding masks are supported"
        return Attended(self.context(query, new, mask, position))


KernelFactory = Callable[[HeadShape], Kernel]  # builds a layer's kernel
