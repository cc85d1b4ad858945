"""Interface of explanation methods and of their results."""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

from torch import Tensor

from seqattn.models.base import Seq2SeqModel


class Explanation(NamedTuple):
    """Contributions of each token read to each target token.

    Row t explains the prediction of target token t. Padding is 0. `source`, `prefix` and `rest` of
    a row add up to the quantity that the method distributes: 1 for methods that follow attention.
    """

    source: Tensor
    """(B, T, S) contributions of source tokens, in the order of the ids."""
    prefix: Tensor
    """(B, T, T) contributions of target tokens read so far: column 0 is the begin mark, column j
    target token j - 1; 0 for j > t."""
    rest: Tensor
    """(B, T) the rest: biases, or what the method cannot attribute."""


class Method(ABC):
    """Method of explaining a model's outputs."""

    name: ClassVar[str]
    """Name of the method."""
    cites: ClassVar[str]
    """Publication of the method."""
    signed: ClassVar[bool] = False
    """True if contributions may be negative."""
    slow: ClassVar[bool] = False
    """True if it takes seconds per sentence, so that it runs only if requested by name."""

    def why_not(self, model: Seq2SeqModel) -> str | None:
        """Return why the method cannot explain this model; None (the default) if it can."""
        return None

    @abstractmethod
    def explain(self, model: Seq2SeqModel, source: Tensor, target: Tensor) -> Explanation:
        """Return contributions to each target token.

        Args:
            model: model in eval mode, for which `why_not` is None.
            source: (B, S) ids, end mark included, padded with 0 on either side.
            target: (B, T) ids to predict, end mark included, padded with 0 on the right.
        """


class Contrasting(Method):
    """Method whose contributions depend on the predicted token, so that two can be compared.

    The contributions to a difference of scores are those of Yin and Neubig 2022 (arXiv 2202.10419).
    """

    @abstractmethod
    def explain(
        self, model: Seq2SeqModel, source: Tensor, target: Tensor, instead: Tensor | None = None
    ) -> Explanation:
        """Return contributions to each target token, or to its advantage over another.

        Args:
            model, source, target: as `Method.explain`.
            instead: (B, T) a token to compare with each of target's, after the same prefix: the
                contributions are to the difference of their log-probabilities, negative where they
                favor the other, and 0 in rows of equal tokens.
        """
