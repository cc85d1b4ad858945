"""What every kernel offers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor, nn

from seqattn.attention.base import Abilities
from seqattn.attention.cache import Cache, KeysValues
from seqattn.attention.masks import Mask
from seqattn.attention.watched import Watched
from seqattn.positions.base import Position


@dataclass(frozen=True)
class HeadShape:
    """The sizes of an attention's heads, and what is dropped of their weights."""

    num_heads: int  # query heads H
    num_kv_heads: int  # key and value heads G, dividing H
    head_dim: int  # width of a head Dh
    dropout: float = 0.0  # share of attention weights dropped in training


class Attended(NamedTuple):
    """What a kernel makes of queries."""

    context: Tensor  # (B*K, H, T, Dh); zeros for a query with nothing to look at
    weights: Tensor | None = None  # (B*K, H, T, S) where asked for, before any dropout


class Kernel(Watched, nn.Module, ABC):
    """Turns queries, keys and values into a context; owns no projection of them.

    Its own options are keyword parameters after the shape.

    Args:
        shape: sizes of the heads.
    """

    abilities: ClassVar[Abilities]
    exceptions: Mapping[str, str] = {}  # laws of `LAWS` that cannot hold here, each with the reason
    max_length: int | None = None  # longest sequence in tokens, None where there is no limit
    mixes_values: ClassVar[bool] = True  # whether a context holds the values of other tokens
    unlike_heads: str = ""  # why no head can be taken from among the others; "" where any can

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
        """The context of each query.

        Args:
            query: (B*K, H, T, Dh); K beams of a sentence next to each other, or K = 1.
            new: keys and values; self-attention (B*K, G, T, Dh), cross-attention (B, G, S, Dh).
            mask: which keys each query may look at.
            position: the layer's position scheme.
            cache: the past of self-attention, to which `new` is added; None for none.
            need_weights: give the weights too, with gradients going through them; only kernels
                whose `abilities.copies` is true do, others give None.
        """

    def prepared(self, source: KeysValues, mask: Mask, position: Position) -> KeysValues:
        """The same, or what also holds what the kernel made of them. Args: as `Attention`'s."""
        return source

    def make_cache(self, beams: int) -> Cache:
        """An empty cache for `beams` hypotheses per sentence, of a kernel that is incremental."""
        raise NotImplementedError


class EncoderKernel(Kernel):
    """Every token may see every other, at once: neither causal, nor cross, nor incremental."""

    only_padding: ClassVar[bool] = True  # that it can hide, as tokens meet in sums over all

    @abstractmethod
    def context(self, query: Tensor, new: KeysValues, mask: Mask, position: Position) -> Tensor:
        """The context (B, H, T, Dh). Args: as `forward`."""

    def forward(
        self,
        query: Tensor,
        new: KeysValues,
        mask: Mask,
        position: Position,
        cache: Cache | None = None,
        need_weights: bool = False,
    ) -> Attended:
        assert not mask.causal, "it fits an encoder's self-attention"
        assert mask.extra is None or not self.only_padding, "its tokens meet in sums over all"
        return Attended(self.context(query, new, mask, position))


KernelFactory = Callable[[HeadShape], Kernel]  # makes a layer's own kernel
