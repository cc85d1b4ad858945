"""Beam search."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from annotated_types import Ge, Le
from torch import Tensor

from seqattn.checking import BadValue, Count, NotNegative
from seqattn.generation.base import Hypothesis, Search, SearchModel
from seqattn.generation.running import Running
from seqattn.generation.stepper import Stepper
from seqattn.models.base import Memory
from seqattn.ops.topk import largest
from seqattn.tokens import EOS


class Candidates(NamedTuple):
    """Continuations of a sentence's beams, each (B', N)."""

    scores: Tensor
    """Log-probabilities in nats; -inf for none."""
    parents: Tensor
    """The beams that they continue."""
    tokens: Tensor


@dataclass(frozen=True)
class BeamSearch(Search):
    """Search that keeps the K most probable unfinished and the best finished hypotheses.

    A hypothesis of n tokens, end included, scores log p / n^alpha (as in fairseq; alpha 1 is the
    mean log-probability). Live beams exclude finished hypotheses, so that all K continue.

    Args:
        limit, processors: as in `Search`.
        beam_size: K.
        n_best: distinct hypotheses returned for each source, at most K.
        length_penalty: alpha, on true lengths.
        early_stopping: stop a sentence at its K-th finished hypothesis; False continues until no
            live beam can beat the n_best finished ones.
        coverage_penalty: beta of Wu et al. 2016 (arXiv 1609.08144, eq. 14): a finished hypothesis
            scores an additional beta * sum_i log(min(sum_j a_ij, 1)), which penalizes unattended
            source tokens. Here a is the last cross-attention, averaged over heads; i runs over
            all source tokens, end included, and j over all generated tokens.

    Raises:
        UserError: n_best is above beam_size.
    """

    beam_size: Annotated[int, Ge(1), Le(1_000)] = 5
    n_best: Count = 1
    length_penalty: Annotated[float, Ge(0), Le(10)] = 1.0
    early_stopping: bool = True
    coverage_penalty: NotNegative = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_best > self.beam_size:
            largest = f"generation.beam_size ({self.beam_size})"
            raise BadValue("n_best", f"must be from 1 to {largest}, got {self.n_best}")

    @property
    def beams(self) -> int:
        return self.beam_size

    @property
    def returned(self) -> int:
        """Maximum number of finished hypotheses returned for each source."""
        return self.n_best

    def propose(
        self, stepper: Any, following: Tensor, batch: "BeamBatch", length: int
    ) -> Candidates:
        """Return the candidates of a step, for subclasses that choose others.

        Args:
            stepper: a `Stepper` after the step, with the hypotheses so far.
            following: (B', K, V) log-probability of each token after each beam.
            batch: live beams.
            length: number of the step, from 1.
        """
        return candidates(following, batch.scores)

    def observe(self, length: int, candidates: Candidates, live: Candidates, last: Tensor) -> None:
        """Receive each step, for subclasses that record a search.

        Args:
            length: number of the step, from 1.
            candidates: (B, 2K), best first.
            live: (B, K) the candidates that continue.
            last: (B, 1) True for sentences at their maximum length, whose live beams finish.
        """

    def search(
        self, model: SearchModel, memory: Memory, numbers: Sequence[int]
    ) -> list[list[Hypothesis]]:
        max_length = self.limit.of(memory.real.sum(dim=1), model.max_target_length)
        covers = self.coverage_penalty > 0
        stepper = Stepper(self, model, memory, self.beam_size, need_weights=covers)
        return hypotheses(self, stepper.run(BeamBatch(self, max_length)))

    @property
    def captured_as(self) -> Hashable | None:
        settings = (self.beam_size, self.n_best, self.length_penalty, self.early_stopping)
        return settings if type(self) is BeamSearch else None


class BeamBatch(Running):
    """Live beams and finished hypotheses of each sentence.

    A finished hypothesis is stored as the number n*K + k of beam k after n steps, and each step as
    the parents and tokens of its live beams, so that no step copies hypotheses.

    Args:
        search: its settings, with K beams.
        max_length: (B,) maximum tokens of each sentence, end included.
    """

    names = (*Running.names, "scores", "num_finished", "finished", "links")
    by_step = ("links",)
    outcome = ("finished", "links")

    def __init__(self, search: BeamSearch, max_length: Tensor) -> None:
        super().__init__(max_length, search.beam_size)
        self.search = search
        sentences, beams = self.ids.shape
        self.scores = torch.full((sentences, beams), -torch.inf, device=max_length.device)
        """(B', K) log-probabilities of the live beams."""
        self.scores[:, 0] = 0.0  # all beams are equal at first
        self.active = torch.ones_like(max_length, dtype=torch.bool)
        self.num_finished = torch.zeros_like(max_length)
        """(B',) number of hypotheses that have ended."""
        # (B', 3K, 3) score, log-probability and number of the best finished; -inf for none
        self.finished = self.scores.new_full((sentences, 3 * beams, 3), -torch.inf).double()
        # (B', K, steps, 2) parent and token of each live beam
        self.links = self.ids.new_zeros(sentences, beams, int(max_length.max()), 2, dtype=torch.int)

    def advance(self, stepper: Any) -> None:
        following, beams = stepper.step(self.ids), self.search.beam_size
        length = stepper.position + 1  # (1,) tokens of each candidate, end included
        last = (length >= self.max_length)[:, None]
        # 2K of each sentence, or as many as there are, best first
        scores, parents, tokens = self.search.propose(stepper, following, self, stepper.steps)
        scores = scores.masked_fill(~self.active[:, None], -torch.inf)
        ends = tokens == EOS
        growing = scores.masked_fill(ends, -torch.inf)
        order = growing.argsort(dim=1, descending=True, stable=True)[:, :beams]
        live = Candidates(*(part.gather(1, order) for part in (growing, parents, tokens)))
        self.search.observe(stepper.steps, Candidates(scores, parents, tokens), live, last)

        finished = scores.masked_fill(~ends, -torch.inf)[:, :beams]
        unfinished = live.scores.masked_fill(~last, -torch.inf)  # at the limit, without an end
        all_parents = torch.cat((parents[:, :beams], live.parents), dim=1)
        beam_numbers = torch.arange(beams, device=all_parents.device).expand_as(live.parents)
        numbers = torch.cat((all_parents[:, :beams] - beams, beam_numbers), dim=1) + length * beams
        covered, extra = stepper.coverage_score(), 0.0
        if covered is not None:
            extra = covered.gather(1, all_parents) * self.search.coverage_penalty
        self._finish(length, torch.cat((finished, unfinished), dim=1), extra, numbers)

        self.scores.copy_(live.scores)
        self.ids.copy_(live.tokens)
        links = torch.stack((live.parents, live.tokens), dim=2).int()
        self.links.index_copy_(2, length - 1, links[:, :, None])
        self.active &= ~(last[:, 0] | (live.scores[:, 0] == -torch.inf) | self._is_final())
        self.count()
        stepper.reorder(live.parents)

    def _finish(
        self, length: Tensor, log_probabilities: Tensor, extra: Tensor | float, numbers: Tensor
    ) -> None:
        """Add finished hypotheses, each (B', 2K)."""
        exact = log_probabilities.double()
        scores = exact / length.double() ** self.search.length_penalty + extra
        every = torch.stack((scores, exact, numbers.double()), dim=2)
        every = torch.cat((self.finished, every), dim=1)
        order = every[..., 0].argsort(dim=1, descending=True, stable=True)
        order = order[:, : self.finished.shape[1], None]
        self.finished.copy_(every.take_along_dim(order, dim=1))
        self.num_finished += (log_probabilities > -torch.inf).sum(dim=1)

    def _is_final(self) -> Tensor:
        """Return which sentences need no further step: (B',) bool."""
        search = self.search
        if search.early_stopping:
            return self.num_finished >= search.beam_size
        # an upper bound: log-probabilities only fall, lengths are at most this, extras are <= 0
        reachable = self.scores[:, 0].double() / self.max_length**search.length_penalty
        return self.finished[:, search.n_best - 1, 0] >= reachable


def hypotheses(search: BeamSearch, results: Mapping[str, Tensor]) -> list[list[Hypothesis]]:
    """Return the best finished hypotheses of each of B sentences, best first.

    Args:
        search: the search.
        results: outcome of a `BeamBatch`.
    """
    best = results["finished"][:, : search.returned].cpu().numpy()
    numbers = np.where(np.isneginf(best[..., 0]), 0, best[..., 2]).astype(np.int64)
    lengths, beams = np.divmod(numbers, search.beam_size)
    ids = _ids(lengths, beams, results["links"].cpu().numpy())
    return [
        [
            Hypothesis(tuple(tokens[:length].tolist()), float(score), float(log_probability))
            for tokens, length, (score, log_probability, _) in zip(*sentence, strict=True)
            if score > -np.inf
        ]
        for sentence in zip(ids, lengths, best, strict=True)
    ]


def _ids(lengths: Any, beams: Any, links: Any) -> Any:
    """Return the tokens (B, N, L) of hypotheses, followed from their last beams to the first.

    Args:
        lengths, beams: (B, N) tokens and last beam of each hypothesis.
        links: (B, K, L, 2) parent and token of each beam after each step.
    """
    ids = np.zeros((*lengths.shape, links.shape[2]), np.int64)
    for step in reversed(range(int(lengths.max(initial=0)))):
        linked = np.take_along_axis(links[:, :, step], beams[..., None], axis=1)  # (B, N, 2)
        ids[..., step] = linked[..., 1]
        beams = np.where(lengths > step, linked[..., 0], beams)
    return ids


def candidates(following: Tensor, scores: Tensor) -> Candidates:
    """Return the 2K best continuations of each sentence, enough for K live ones if K of them end.

    Args:
        following: (B, K, V) log-probability of each token after each beam.
        scores: (B, K) log-probability of each beam so far.

    Returns:
        (B, 2K) candidates or as many as there are, best first.
    """
    _, beams, size = following.shape
    best, index = largest(following, scores, min(2 * beams, beams * size))
    return Candidates(best, index // size, index % size)
