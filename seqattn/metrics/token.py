"""What a model says of the reference's own tokens."""

import torch
from torch import Tensor
from torchmetrics import Metric


class TokenScores(Metric):
    """Loss, perplexity and accuracy per real token, from sums over batches and ranks."""

    full_state_update = False
    smoothed: Tensor
    nll: Tensor
    correct: Tensor
    tokens: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("smoothed", "nll", "correct", "tokens"):
            zero = torch.zeros((), dtype=torch.float64)
            self.add_state(name, default=zero, dist_reduce_fx="sum")

    def update(self, smoothed: Tensor, nll: Tensor, correct: Tensor, tokens: Tensor) -> None:
        """Adds a batch's sums: of both losses in nats, of tokens guessed right, of tokens."""
        self.smoothed += smoothed.detach()
        self.nll += nll.detach()
        self.correct += correct
        self.tokens += tokens

    def compute(self) -> dict[str, Tensor]:
        """`loss` (smoothed) and `nll` in nats a token, `perplexity`, `accuracy` from 0 to 1."""
        nll = self.nll / self.tokens
        return {
            "loss": (self.smoothed / self.tokens).float(),
            "nll": nll.float(),
            "perplexity": nll.exp().float(),
            "accuracy": (self.correct / self.tokens).float(),
        }
