"""What a position scheme may do: five hooks, each the identity until a scheme overrides it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True)
class Stack:
    """The stack of layers that a scheme serves.

    Args:
        dim: model width D.
        num_heads: query heads H of its self-attention.
        layers: how many layers it has.
        bidirectional: an encoder, where queries also see what follows them; False for a decoder.
        kept_heads: of each layer the heads that pruning left; () where it left all.
    """

    dim: int
    num_heads: int
    layers: int = 1
    bidirectional: bool = True
    kept_heads: Sequence[Sequence[int]] = ()

    @property
    def head_dim(self) -> int:
        """Width of a head Dh."""
        return self.dim // self.num_heads

    def heads(self, layer: int) -> list[int]:
        """The heads that a layer has, by their numbers among `num_heads`."""
        return list(self.kept_heads[layer] if self.kept_heads else range(self.num_heads))


class Position(nn.Module):
    """No position at all, and the base of every scheme (`position=none`).

    One instance serves a whole stack of layers; `at_layer` gives the part that one layer uses.
    A scheme overrides only the hooks it acts through and names them in `hooks`, so that a kernel
    can refuse a scheme whose hooks it does not take.

    Args:
        stack: what it serves.
    """

    hooks: frozenset[str] = frozenset()
    max_length: int | None = None  # longest sequence in tokens, None where there is no limit

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.stack = stack

    def at_layer(self, layer: int) -> "Position":
        """The part that layer number `layer` (from 0) uses; the shared part itself by default."""
        return self

    def prepared(self) -> "Position":
        """The same with what no query changes worked out, for as long as its weights stay."""
        return self

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Adds positions, (T,) or (B, T) whole numbers from 0, to embeddings (B, T, D)."""
        return x

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Turns queries or keys (B, H or G, T, Dh) by their positions, (T,) or (B, T)."""
        return x

    def score_term(
        self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor
    ) -> Tensor | None:
        """What to add to the scaled scores of a block of queries and keys.

        Args:
            q: (B, H, T, Dh).
            k: (B, G, S, Dh).
            q_positions: (T,) or (B, T).
            k_positions: (S,) or (B, S).

        Returns:
            Broadcastable to (B, H, T, S), or None for nothing.
        """
        return None

    def value_term(
        self, weights: Tensor, q_positions: Tensor, k_positions: Tensor
    ) -> Tensor | None:
        """What to add to the context, from weights (B, H, T, S): (B, H, T, Dh), or None."""
        return None

    def score_scale(self, head_dim: int) -> float:
        """The factor on query-key products: 1/sqrt(Dh) unless the scheme defines another."""
        return float(head_dim**-0.5)


class LayeredPosition(Position):
    """A scheme whose layers have parameters of their own, each in a part that `make` makes.

    Args:
        stack: what it serves.
        make: makes the part of a layer, for so many heads.
    """

    def __init__(self, stack: Stack, make: Callable[[int], Position]) -> None:
        super().__init__(stack)
        parts = [make(len(stack.heads(layer))) for layer in range(stack.layers)]
        self.hooks = frozenset().union(*(part.hooks for part in parts))
        self.parts = nn.ModuleList(parts)

    def at_layer(self, layer: int) -> Position:
        part = self.parts[layer]
        assert isinstance(part, Position)
        return part

    def score_term(
        self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor
    ) -> Tensor | None:
        raise TypeError(f"{type(self).__name__} differs by layer; use its at_layer(number)")
