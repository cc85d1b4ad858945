"""What a hypothesis may not say next."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seqattn.checking import Count, CountOrNone
from seqattn.tokens import EOS


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
    """No end before so many tokens stand."""

    minimum: CountOrNone

    def __call__(self, scores: Tensor, said: Tensor) -> None:
        if said.shape[1] < self.minimum:
            scores[:, EOS] = -torch.inf


@dataclass(frozen=True)
class NoRepeatNgram(Processor):
    """No n tokens that stand in a row already (Paulus et al. 2018, arXiv 1705.04304, section 2.5).

    Args:
        size: n, at least 1; 1 says no token twice.
    """

    size: Count

    def __call__(self, scores: Tensor, said: Tensor) -> None:
        length = said.shape[1]
        if length < self.size:
            return
        ngrams = said.unfold(1, self.size, 1)  # (R, L) -> (R, L-n+1, n)
        begun = said[:, None, length - self.size + 1 :]  # the last n-1 tokens
        again = (ngrams[..., :-1] == begun).all(dim=2)
        # without a list of them, for which a GPU would have to be waited for
        bans = torch.where(again, -torch.inf, torch.inf).to(scores.dtype)
        scores.scatter_reduce_(1, ngrams[..., -1], bans, "amin")


@dataclass(frozen=True)
class ForcedPrefix(Processor):
    """Begins every hypothesis with the same tokens, which count at the model's own probability.

    A search so finds what it would if no other beginning were there.

    Args:
        ids: the tokens, begin and end left out.
        then: processors of what follows; they do not see what is forced before it stands.
    """

    ids: Sequence[int]
    then: Sequence[Processor] = ()

    def __call__(self, scores: Tensor, said: Tensor) -> None:
        place = said.shape[1]
        if place < len(self.ids):
            forced = scores[:, self.ids[place]].clone()
            scores.fill_(-torch.inf)
            scores[:, self.ids[place]] = forced
            return
        for processor in self.then:
            processor(scores, said)
