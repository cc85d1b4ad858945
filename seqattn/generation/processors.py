"""Constraints on the next token of a hypothesis."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Gt, Le
from torch import Tensor

from seqattn.checking import BadValue, Count, CountOrNone, shown
from seqattn.errors import UserError
from seqattn.tokens import EOS


class Processor(ABC):
    """Constraint that forbids some next tokens; others keep the model's probability.

    A processor may also change probabilities, and so those of outputs.
    """

    constrains: bool = True
    """False if it only observes a search."""
    reads_source: bool = False
    """True if it is also called with the ids of the sources (R, S)."""
    reads_numbers: bool = False
    """True if it is then called with the number in its batch of each source (B'), too."""

    def __str__(self) -> str:
        return type(self).__name__

    @abstractmethod
    def __call__(self, scores: Tensor, prefix: Tensor) -> None:
        """Set forbidden tokens to -inf in place.

        Args:
            scores: (R, V) log-probabilities of the next token of R hypotheses, before temperature,
                top-k and top-p of sampling.
            prefix: (R, L) their tokens so far, without begin.
        """


@dataclass(frozen=True)
class NoRepeatNgram(Processor):
    """Constraint against repeated n-grams (Paulus et al. 2018, arXiv 1705.04304, section 2.5).

    Args:
        size: n, at least 1; 1 forbids any repeated token.
    """

    size: Count

    def __call__(self, scores: Tensor, prefix: Tensor) -> None:
        _forbid_ngrams(scores, prefix, prefix, self.size)


@dataclass(frozen=True)
class EncoderNoRepeatNgram(Processor):
    """Constraint against n-grams of the source, in one vocabulary for both sides.

    Args:
        size: n, at least 1; 1 forbids every token of the source.
    """

    size: Count
    reads_source = True

    def __call__(self, scores: Tensor, prefix: Tensor, source: Tensor | None = None) -> None:
        assert source is not None
        _forbid_ngrams(scores, prefix, source, self.size)


def _forbid_ngrams(scores: Tensor, prefix: Tensor, read: Tensor, size: int) -> None:
    """Forbid tokens that would make the last ones of `prefix` an n-gram of `read` (R, M)."""
    length = prefix.shape[1]
    if min(length + 1, read.shape[1]) < size:
        return
    ngrams = read.unfold(1, size, 1)  # (R, M) -> (R, M-n+1, n)
    suffix = prefix[:, None, length - size + 1 :]  # the last n-1 tokens
    again = (ngrams[..., :-1] == suffix).all(dim=2)
    # without `nonzero`, which would synchronize a GPU
    bans = torch.where(again, -torch.inf, torch.inf).to(scores.dtype)
    scores.scatter_reduce_(1, ngrams[..., -1], bans, "amin")


@dataclass(frozen=True)
class RepetitionPenalty(Processor):
    """Factor of the log-probabilities of tokens that an output has already.

    Keskar et al. (2019, arXiv 1909.05858, section 4.1) divide logits, which are known but for a
    constant; log-probabilities are what transformers penalizes in beam search. Log-probabilities
    of outputs include the factor.

    Args:
        penalty: the factor; above 1 makes repetitions less likely.
        end: penalize the end from the start, as in models whose outputs begin with it.
    """

    penalty: Annotated[float, Gt(0), Le(100)]
    end: bool = False

    def __call__(self, scores: Tensor, prefix: Tensor) -> None:
        scores.scatter_(1, prefix, scores.gather(1, prefix) * self.penalty)
        if self.end:
            scores[:, EOS] *= self.penalty


@dataclass(frozen=True)
class BadWords(Processor):
    """Constraint against given sequences of tokens.

    Args:
        ids: ids of each sequence, at least one.
    """

    ids: Sequence[Sequence[CountOrNone]]

    def __post_init__(self) -> None:
        if not self.ids or not all(self.ids):
            raise BadValue("ids", f"must list sequences of token ids, got {shown(self.ids)}")

    def __call__(self, scores: Tensor, prefix: Tensor) -> None:
        for *start, last in self.ids:
            if max(last, *start, -1) >= scores.shape[1]:
                raise UserError(
                    f"bad_words: ids must be below {scores.shape[1]:,}, the size of the "
                    f"vocabulary, got {[*start, last]}"
                )
            if len(start) <= prefix.shape[1]:
                matches = torch.ones_like(scores[:, 0], dtype=torch.bool)
                for back, token in enumerate(reversed(start), 1):
                    matches &= prefix[:, -back] == token
                scores[:, last].masked_fill_(matches, -torch.inf)


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
    reads_source = True

    def __str__(self) -> str:
        return "forced first tokens"

    def __call__(self, scores: Tensor, prefix: Tensor, source: Tensor | None = None) -> None:
        position = prefix.shape[1]
        if position < len(self.ids):
            forced = scores[:, self.ids[position]].clone()
            scores.fill_(-torch.inf)
            scores[:, self.ids[position]] = forced
            return
        process(self.then, scores, prefix, source)


def process(
    processors: Iterable[Processor],
    scores: Tensor,
    prefix: Tensor,
    source: Tensor | None,
    numbers: Sequence[int] = (),
) -> None:
    """Apply processors in order.

    Args:
        processors, scores, prefix: as `Processor`.
        source: ids of the sources (R, S).
        numbers: number in its batch of each source (B'), whose hypotheses are adjacent.
    """
    for processor in processors:
        reads = getattr(processor, "reads_source", False) + getattr(
            processor, "reads_numbers", False
        )
        processor(scores, prefix, *(source, numbers)[:reads])
