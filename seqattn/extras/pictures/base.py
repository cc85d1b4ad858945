"""Interface of the pictures of a bundle."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure

from seqattn.extras.pictures.health import ForwardPass


class Look(NamedTuple):
    """Lines of text about an input and its output, and figures of the attention by name."""

    lines: list[str]
    figures: dict[str, Figure]


class Pictures(ABC):
    """Pictures of a bundle's attention.

    A bundle of another kind than text has its own: a method `pictures` that returns them.
    """

    @abstractmethod
    def look(self, text: str, context: str, target: str | None, heads: bool) -> Look:
        """Draw the attention in one text, or in one question with its context.

        Args:
            text: the text or question.
            context: context of the question.
            target: an output to use in place of the model's; None for the model's.
            heads: True to draw each layer's heads, too.
        """

    @abstractmethod
    def sample(self, rows: Any, numbers: Sequence[int]) -> Figure | None:
        """Draw the attention in a row of a split; None if it has no weights.

        Args:
            rows: as `Bundle.rows`.
            numbers: numbers of the rows that are validated; the model may lack positions for
                others.
        """

    @abstractmethod
    def forward_pass(self, batch: Any, device: torch.device) -> ForwardPass:
        """Return the forward pass of the model over a batch of training on a device."""
