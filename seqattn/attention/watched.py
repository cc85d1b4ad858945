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

    observer: Observer | None = None  # called with the weights of each call, after any edit
    edit: Edit | None = None  # gives weights in place of the true ones
    # whether the context is made from the observed weights, so that gradients reach them
    keep_weight_gradients = False

    @property
    def watched(self) -> bool:
        """Whether anyone asks for the weights."""
        return self.observer is not None or self.edit is not None

    def settled(self, weights: Tensor, visible: Callable[[], Tensor | None]) -> Tensor | None:
        """Shows weights, edited where an edit asks to; those that must make the context, if any.

        Args:
            weights: (B, H, T, S).
            visible: gives what an edit is told of where queries may look.
        """
        if self.edit is not None:
            weights = self.edit(weights, visible()).to(weights.dtype)
        if self.observer is not None:
            self.observer(weights)
        return weights if self.edit is not None or self.keep_weight_gradients else None
