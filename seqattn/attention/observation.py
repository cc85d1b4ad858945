"""Attention weights that `analysis` observes and edits."""

from collections.abc import Callable

from torch import Tensor

Observer = Callable[[Tensor], None]
"""Callback that gets weights (B, H, T, S)."""
Edit = Callable[[Tensor, Tensor | None], Tensor]
"""Function of the true weights (B, H, T, S), and of a bool tensor broadcastable to them, True where
a query may attend (None for everywhere), that returns the weights to use instead."""


class Observable:
    """Base of modules whose weights can be observed and edited within a block of `analysis`."""

    observers: tuple[Observer, ...] = ()  # called with the weights of each call, after all edits
    edits: tuple[Edit, ...] = ()  # each replaces the weights

    @property
    def is_observed(self) -> bool:
        """True if there are observers or edits."""
        return bool(self.observers or self.edits)

    def edit_and_show(self, weights: Tensor, visible: Callable[[], Tensor | None]) -> Tensor | None:
        """Apply edits and show the weights to observers; return them if edited, else None.

        Args:
            weights: (B, H, T, S).
            visible: returns the mask that edits get.
        """
        if self.edits:
            kind, allowed = weights.dtype, visible()
            for edit in self.edits:
                weights = edit(weights, allowed).to(kind)
        for observer in self.observers:
            observer(weights)
        return weights if self.edits else None
