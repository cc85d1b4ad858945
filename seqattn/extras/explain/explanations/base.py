"""What every explanation of an output gives, and what a method of explaining offers."""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

from torch import Tensor

from seqattn.models.base import Seq2SeqModel


class Explanation(NamedTuple):
    """How much each token that was read contributed to each target token.

    Row t is of the prediction of target token t. What is padded is 0. `source`, `prefix` and `rest`
    of a row add up to what the method shares out: 1 for those that follow attention.
    """

    source: Tensor
    """(B, T, S) of the source's tokens, in the order of the ids."""
    prefix: Tensor
    """(B, T, T) of the target tokens read so far: column 0 is the begin, column j target token
    j - 1; 0 for j > t."""
    rest: Tensor
    """(B, T) what is left: biases, or what a method cannot share out."""


class Method(ABC):
    """A way to explain the outputs of a model."""

    name: ClassVar[str]
    """What a user calls it."""
    cites: ClassVar[str]
    """Where it was published."""
    signed: ClassVar[bool] = False
    """Whether contributions may be negative."""
    slow: ClassVar[bool] = False
    """Whether it takes seconds for a sentence, so that one has to ask for it by name."""

    def why_not(self, model: Seq2SeqModel) -> str | None:
        """Why it cannot explain this model, in words; None where it can, which is the default."""
        return None

    @abstractmethod
    def explain(self, model: Seq2SeqModel, source: Tensor, target: Tensor) -> Explanation:
        """Contributions to each target token.

        Args:
            model: in eval mode, for which there is no `why_not`.
            source: (B, S) ids, end included, padded with 0 on either side.
            target: (B, T) ids that are predicted, end included, padded with 0 on the right.
        """
