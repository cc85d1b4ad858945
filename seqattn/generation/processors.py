"""What a hypothesis may not say next, and how its score is judged beside its probability."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seqattn.errors import UserError
from seqattn.models.base import EOS


class Processor(ABC):
    """Forbids tokens by what a hypothesis has said; the others keep the model's probability."""

    @abstractmethod
    def __call__(self, scores: Tensor, said: Tensor) -> None:
        """Sets forbidden tokens to -inf in place.

        Args:
            scores: (R, V) log-probabilities of what follows each of R hypotheses.
            said: (R, L) their tokens so far, begin left out.
        """


@dataclass(frozen=True)
class MinimumLength(Processor):
    """No end before so many tokens stand. Args: minimum: at least 0."""

    minimum: int

    def __call__(self, scores: Tensor, said: Tensor) -> None:
        if said.shape[1] < self.minimum:
            scores[:, EOS] = -torch.inf


@dataclass(frozen=True)
class NoRepeatedNgrams(Processor):
    """No n tokens that stand in a row already (Paulus et al. 2018, arXiv 1705.04304, section 2.5).

    Args:
        size: n, at least 1; 1 says no token twice.
    """

    size: int

    def __call__(self, scores: Tensor, said: Tensor) -> None:
        length = said.shape[1]
        if length < self.size:
            return
        ngrams = said.unfold(1, self.size, 1)  # (R, L) -> (R, L-n+1, n)
        begun = said[:, None, length - self.size + 1 :]  # the last n-1 tokens
        rows, places = (ngrams[..., :-1] == begun).all(dim=2).nonzero(as_tuple=True)
        scores[rows, ngrams[rows, places, -1]] = -torch.inf


def processors(minimum: int, no_repeat_ngram: int) -> list[Processor]:
    """Those that these options ask for; 0 asks for none."""
    made: list[Processor] = [MinimumLength(minimum)] if minimum else []
    return [*made, NoRepeatedNgrams(no_repeat_ngram)] if no_repeat_ngram else made


def check_ngram(size: int) -> None:
    """Refuses a size that no n-gram has.

    Raises:
        UserError: where it is below 0.
    """
    if size < 0:
        raise UserError(f"generation.no_repeat_ngram must be at least 0, got {size}")


def forbid(made: Sequence[Processor], scores: Tensor, said: Tensor) -> None:
    """Applies all of them; a hypothesis that may say nothing else may end.

    Args: `scores` and `said` as a processor's.
    """
    if len(made) < 2:  # no end, or no repetition: either leaves the other
        for processor in made:
            processor(scores, said)
        return
    end = scores[:, EOS].clone()
    for processor in made:
        processor(scores, said)
    silent = scores.amax(dim=1) == -torch.inf
    scores[silent, EOS] = end[silent]


def coverage(looked: Tensor, real: Tensor) -> Tensor:
    """sum over source tokens of log(min(weight on it so far, 1)): 0 where all were looked at.

    Wu et al. 2016 (arXiv 1609.08144, eq. 14), without its factor beta. A token at which no weight
    ever fell counts as if a tiny one had, so that the sum stays finite.

    Args:
        looked: (B, K, S) the weights of each hypothesis, summed over what it has said.
        real: (B, S) bool, True where a token stands.

    Returns:
        (B, K), at most 0.
    """
    least = torch.finfo(looked.dtype).tiny
    logs = looked.clamp(min=least, max=1.0).log()
    return logs.masked_fill(~real[:, None], 0.0).sum(dim=2)
