"""Weights that `analysis` looks at, and may edit."""

from collections.abc import Callable

from torch import Tensor

Observer = Callable[[Tensor], None]
"""Shown weights (B, H, T, S)."""
Edit = Callable[[Tensor, Tensor | None], Tensor]
"""From true weights (B, H, T, S), and bool broadcastable to them, True where a query may look (None
where it may everywhere), to those that are used instead."""


class Watched:
    """What makes weights that can be observed, and edited, while a block of `analysis` runs."""

    observers: tuple[Observer, ...] = ()  # called with the weights of each call, after all edits
    edits: tuple[Edit, ...] = ()  # each gives others in place of those that it is given

    @property
    def watched(self) -> bool:
        """Whether anyone asks for the weights."""
        return bool(self.observers or self.edits)

    def settled(self, weights: Tensor, visible: Callable[[], Tensor | None]) -> Tensor | None:
        """Shows weights, edited where an edit asks to; those that must make the context, if any.

        Args:
            weights: (B, H, T, S).
            visible: gives what an edit is told of where queries may look.
        """
        if self.edits:
            kind, seen = weights.dtype, visible()
            for edit in self.edits:
                weights = edit(weights, seen).to(kind)
        for observer in self.observers:
            observer(weights)
        return weights if self.edits else None
