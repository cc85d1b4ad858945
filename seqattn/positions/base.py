"""Base of position schemes: five hooks, each without effect by default."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True)
class Stack:
    """The stack of layers that uses a position scheme.

    Args:
        dim: model width D.
        num_heads: query heads H of its self-attention.
        layers: how many layers it has.
        bidirectional: True for an encoder, where queries also see later tokens.
        kept_heads: for each layer the heads retained by pruning, none where it does not attend; ()
            if all layers have all heads.
        explicit_head_dim: width of a head; None for dim / num_heads.
    """

    dim: int
    num_heads: int
    layers: int = 1
    bidirectional: bool = True
    kept_heads: Sequence[Sequence[int]] = ()
    explicit_head_dim: int | None = None

    @property
    def head_dim(self) -> int:
        """Width Dh of a head."""
        return self.explicit_head_dim or self.dim // self.num_heads

    def heads(self, layer: int) -> list[int]:
        """Return the indices, among `num_heads`, of the heads that a layer has."""
        return list(self.kept_heads[layer] if self.kept_heads else range(self.num_heads))


class Position(nn.Module):
    """No positions (`position=none`), and the base of every scheme.

    One instance serves a whole stack of layers; `at_layer` gives the part that one layer uses.
    A scheme overrides only the hooks it needs and names them in `hooks`, so that a kernel can
    reject a scheme whose hooks it does not support.

    Args:
        stack: the stack of layers.
    """

    hooks: frozenset[str] = frozenset()
    max_length: int | None = None  # longest sequence in tokens, None where there is no limit

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.stack = stack

    def at_layer(self, layer: int) -> "Position":
        """Return the part that layer number `layer` (from 0) uses; by default the scheme itself."""
        return self

    def prepared(self) -> "Position":
        """Return the scheme with all query-independent tensors precomputed, for fixed weights."""
        return self

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add positions, (T,) or (B, T) integers from 0, to embeddings (B, T, D)."""
        return x

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotate queries or keys (B, H or G, T, Dh) by their positions, (T,) or (B, T)."""
        return x

    def score_term(
        self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor
    ) -> Tensor | None:
        """Return the term added to the scaled scores of a block of queries and keys.

        Args:
            q: (B, H, T, Dh).
            k: (B, G, S, Dh).
            q_positions: (T,) or (B, T).
            k_positions: (S,) or (B, S).

        Returns:
            Broadcastable to (B, H, T, S), or None.
        """
        return None

    def value_term(
        self, weights: Tensor, q_positions: Tensor, k_positions: Tensor
    ) -> Tensor | None:
        """Return the term (B, H, T, Dh) added to the context for weights (B, H, T, S), or None."""
        return None

    def score_scale(self, head_dim: int) -> float:
        """Return the factor on query-key products: 1/sqrt(Dh) unless the scheme defines another."""
        return float(head_dim**-0.5)


class LayeredPosition(Position):
    """A scheme with separate parameters for each layer, in parts built by `make`.

    Args:
        stack: the stack of layers.
        make: builds the part of one layer, for its number of heads; not called for none.
    """

    def __init__(self, stack: Stack, make: Callable[[int], Position]) -> None:
        super().__init__(stack)
        heads = [len(stack.heads(layer)) for layer in range(stack.layers)]
        parts = [make(count) if count else Position(stack) for count in heads]
        self.hooks = frozenset().union(*(part.hooks for part in parts))
        self.parts = nn.ModuleList(parts)

    def at_layer(self, layer: int) -> Position:
        part = self.parts[layer]
        assert isinstance(part, Position)
        return part

    def score_term(
        self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor
    ) -> Tensor | None:
        raise TypeError(f"{type(self).__name__} differs between layers; use at_layer(layer)")
