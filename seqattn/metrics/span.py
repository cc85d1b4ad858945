"""What a model says of the right places of answers."""

import torch
from torch import Tensor
from torchmetrics import Metric


class SpanPlaces(Metric):
    """Loss and accuracy per window, from sums over batches and ranks."""

    full_state_update = False
    sums: Tensor

    def __init__(self) -> None:
        super().__init__()
        # nats, windows whose start and end are both the likeliest, windows
        self.add_state("sums", default=torch.zeros(3, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, loss: Tensor, right: Tensor, windows: int) -> None:
        """Adds a batch's sums: of both losses in nats, of windows that are right, of windows."""
        row = torch.stack([loss.detach().double(), right.double(), right.new_tensor(windows)])
        self.sums += row.to(self.sums.device)

    def compute(self) -> dict[str, Tensor]:
        """`loss` in nats a window, start and end together, and `accuracy` from 0 to 1."""
        loss, right, windows = self.sums
        return {"loss": (loss / windows).float(), "accuracy": (right / windows).float()}
