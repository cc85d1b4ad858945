"""From a recurrent decoder's state and context to the features that the output layer reads."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn


class Readout(nn.Module, ABC):
    """Features of a step from its state, its context and the word that it read.

    Args:
        dim: width I of words, and D of the features.
        hidden_dim: width of a state.
        context_dim: width of a context.
    """

    merge: nn.Linear

    @abstractmethod
    def joined(self, hidden: Tensor, context: Tensor, word: Tensor) -> Tensor:
        """What `merge` reads of (..., hidden), (..., context) and (..., I)."""

    @abstractmethod
    def finished(self, merged: Tensor) -> Tensor:
        """Features (..., D) of what `merge` gives."""

    def forward(self, hidden: Tensor, context: Tensor, word: Tensor) -> Tensor:
        """(..., hidden), (..., context) and (..., I) -> (..., D)."""
        return self.finished(self.merge(self.joined(hidden, context, word)))


class MaxoutReadout(Readout):
    """max over pairs of W [s; y; c] + b (Bahdanau et al. 2015, arXiv 1409.0473, appendix A.2.2).

    Args: as `Readout`.
    """

    def __init__(self, dim: int, hidden_dim: int, context_dim: int) -> None:
        super().__init__()
        self.merge = nn.Linear(hidden_dim + dim + context_dim, 2 * dim)

    def joined(self, hidden: Tensor, context: Tensor, word: Tensor) -> Tensor:
        return torch.cat((hidden, word, context), dim=-1)

    def finished(self, merged: Tensor) -> Tensor:
        return merged.unflatten(-1, (-1, 2)).amax(dim=-1)  # (..., 2*D) -> (..., D, 2) -> (..., D)


class TanhReadout(Readout):
    """The attentional state tanh(W [c; h] + b) (Luong et al. 2015, arXiv 1508.04025, eq. 5).

    Args: as `Readout`.
    """

    def __init__(self, dim: int, hidden_dim: int, context_dim: int) -> None:
        super().__init__()
        self.merge = nn.Linear(context_dim + hidden_dim, dim)

    def joined(self, hidden: Tensor, context: Tensor, word: Tensor) -> Tensor:
        return torch.cat((context, hidden), dim=-1)

    def finished(self, merged: Tensor) -> Tensor:
        return merged.tanh()
