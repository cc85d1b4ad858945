"""16-mixed precision for steps that clip their gradients themselves."""

from torch.amp import GradScaler
from torch.optim import Optimizer


class OnceUnscaled(GradScaler):
    """A scaler that unscales the gradients of a step only once: before they are clipped.

    Lightning unscales them again, within the step of the optimizer.
    """

    unscaled = False

    def unscale_(self, optimizer: Optimizer) -> None:
        if not self.unscaled:
            super().unscale_(optimizer)
        self.unscaled = True

    def update(self, new_scale: float | None = None) -> None:  # type: ignore[override]
        super().update(new_scale)
        self.unscaled = False
