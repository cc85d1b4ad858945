"""Constraints on the next token of a hypothesis."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seqattn.checking import Count, CountOrNone
from seqattn.tokens import EOS


class Processor(ABC):
    """Constraint that forbids some next tokens; others keep the model's probability."""

    constrains: bool = True
    """False if it only observes a search."""

    def __str__(self) -> str:
        return type(self).__name__

    @abstractmethod
    def __call__(self, scores: Tensor, said: Tensor) -> None:
        """Set forbidden tokens to -inf in place.

        Args:
            scores: (R, V) log-probabilities of the next token of R hypotheses, before temperature,
                top-k and top-p of sampling.
            said: (R, L) their tokens so far, without begin.
        """


@dataclass(frozen=True)
class MinimumLength(Processor):
    """Constraint that forbids the end token before a minimum number of tokens."""

    minimum: CountOrNone

    def __call__(self, scores: Tensor, said: Tensor) -> None:
        if said.shape[1] < self.minimum:
            scores[:, EOS] = -torch.inf


@dataclass(frozen=True)
class NoRepeatNgram(Processor):
    """Constraint against repeated n-grams (Paulus et al. 2018, arXiv 1705.04304, section 2.5).

    Args:
        size: n, at least 1; 1 forbids any repeated token.
    """

    size: Count

    def __call__(self, scores: Tensor, said: Tensor) -> None:
        length = said.shape[1]
        if length < self.size:
            return
        ngrams = said.unfold(1, self.size, 1)  # (R, L) -> (R, L-n+1, n)
        begun = said[:, None, length - self.size + 1 :]  # the last n-1 tokens
        again = (ngrams[..., :-1] == begun).all(dim=2)
        # without `nonzero`, which would synchronize a GPU
        bans = torch.where(again, -torch.inf, torch.inf).to(scores.dtype)
        scores.scatter_reduce_(1, ngrams[..., -1], bans, "amin")


@dataclass(frozen=True)
class ForcedPrefix(Processor):
    """Constraint to begin every hypothesis with the same tokens, at the model's probability.

    The search finds the same as if no other prefix existed.

    Args:
        ids: the tokens, without begin and end.
        then: processors for later tokens; they are not applied to the prefix.
    """

    ids: Sequence[int]
    then: Sequence[Processor] = ()

    def __str__(self) -> str:
        return "forced first tokens"

    def __call__(self, scores: Tensor, said: Tensor) -> None:
        place = said.shape[1]
        if place < len(self.ids):
            forced = scores[:, self.ids[place]].clone()
            scores.fill_(-torch.inf)
            scores[:, self.ids[place]] = forced
            return
        for processor in self.then:
            processor(scores, said)
