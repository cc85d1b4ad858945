"""Beam search."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from annotated_types import Ge, Le
from torch import Tensor

from seqattn.checking import BadValue, Count, NotNegative
from seqattn.generation.base import Hypothesis, Search, SearchModel
from seqattn.generation.stepper import Stepper
from seqattn.models.base import Memory
from seqattn.ops.topk import largest
from seqattn.tokens import BOS, EOS


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
            most = f"generation.beam_size ({self.beam_size})"
            raise BadValue("n_best", f"must be from 1 to {most}, got {self.n_best}")

    @property
    def beams(self) -> int:
        return self.beam_size

    @property
    def returned(self) -> int:
        """Maximum number of finished hypotheses returned for each source."""
        return self.n_best

    def propose(
        self, stepper: Stepper, following: Tensor, batch: "BeamBatch", length: int
    ) -> Candidates:
        """Return the candidates of a step, for subclasses that choose others.

        Args:
            stepper: after the step, with the hypotheses so far.
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
        most = self.limit.of(memory.real.sum(dim=1), model.max_target_length)
        batch, beams = BeamBatch(self, most), self.beam_size
        stepper = Stepper(self, model, memory, beams, need_weights=self.coverage_penalty > 0)
        ids = torch.full((len(most), beams), BOS, device=most.device)
        for length in range(1, int(most.max()) + 1):
            proposed = self.propose(stepper, stepper.step(ids), batch, length)
            covered = stepper.coverage()
            extras = None if covered is None else covered * self.coverage_penalty
            parents, ids = batch.advance(length, proposed, extras)
            remaining = batch.remaining()  # the only value of a step that the host reads
            if not len(remaining):
                break
            stepper.reorder(parents)
            if stepper.is_worth_shrinking(len(remaining)):
                stepper.keep(remaining)
                batch.keep(remaining)
                ids = ids[remaining]
        return batch.hypotheses()


class BeamBatch:
    """Live beams and finished hypotheses of each sentence.

    A finished hypothesis is stored as the number n*K + k of beam k after n steps, and each step as
    the parents and tokens of its live beams, so that no step copies hypotheses.

    Args:
        search: its settings, with K beams.
        most: (B,) maximum tokens of each sentence, end included.
    """

    def __init__(self, search: BeamSearch, most: Tensor) -> None:
        self.search, self.most = search, most
        sentences, beams, device = len(most), search.beam_size, most.device
        self.held = torch.arange(sentences, device=device)
        """(B',) the remaining sentences."""
        self.scores = torch.full((sentences, beams), -torch.inf, device=device)
        """(B', K) log-probabilities of their live beams."""
        self.scores[:, 0] = 0.0  # all beams are equal at first
        self.done = torch.zeros(sentences, dtype=torch.bool, device=device)
        self.count = torch.zeros(sentences, dtype=torch.long, device=device)
        # (B, 3K, 3) score, log-probability and number of the best finished; -inf for none
        self.finished = self.scores.new_full((sentences, 3 * beams, 3), -torch.inf).double()
        self.steps: list[tuple[Tensor, Tensor]] = []

    def advance(
        self, length: int, candidates: Candidates, extras: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Continue with the best candidates of a step.

        Args:
            length: tokens of each candidate, end included.
            candidates: 2K of each remaining sentence, or as many as there are, best first.
            extras: (B', K) additional scores of hypotheses that end now, by their parents.

        Returns:
            Parents and tokens (B', K) of the live beams.
        """
        beams, last = self.search.beam_size, (length >= self.most)[:, None]
        scores, parents, tokens = candidates
        scores = scores.masked_fill(self.done[:, None], -torch.inf)
        ends = tokens == EOS
        growing = scores.masked_fill(ends, -torch.inf)
        order = growing.argsort(dim=1, descending=True, stable=True)[:, :beams]
        live = Candidates(*(part.gather(1, order) for part in (growing, parents, tokens)))
        self.search.observe(length, Candidates(scores, parents, tokens), live, last)

        ended = scores.masked_fill(~ends, -torch.inf)[:, :beams]
        cut = live.scores.masked_fill(~last, -torch.inf)  # at the limit, without an end
        before = torch.cat((parents[:, :beams], live.parents), dim=1)
        after = torch.arange(beams, device=before.device).expand_as(live.parents)
        numbers = torch.cat((before[:, :beams] - beams, after), dim=1) + length * beams
        extra = 0.0 if extras is None else extras.gather(1, before)
        self._finish(length, torch.cat((ended, cut), dim=1), extra, numbers)

        self.scores = live.scores
        self.steps.append((self.held, torch.stack((live.parents, live.tokens), dim=2).int()))
        self.done = self.done | last[:, 0] | (live.scores[:, 0] == -torch.inf) | self._is_final()
        return live.parents, live.tokens

    def _finish(
        self, length: int, log_probabilities: Tensor, extra: Tensor | float, numbers: Tensor
    ) -> None:
        """Add finished hypotheses, each (B', 2K)."""
        exact = log_probabilities.double()
        scores = exact / length**self.search.length_penalty + extra
        every = torch.stack((scores, exact, numbers.double()), dim=2)
        every = torch.cat((self.finished[self.held], every), dim=1)
        order = every[..., 0].argsort(dim=1, descending=True, stable=True)
        order = order[:, : self.finished.shape[1], None]
        self.finished[self.held] = every.take_along_dim(order, dim=1)
        self.count = self.count + (log_probabilities > -torch.inf).sum(dim=1)

    def _is_final(self) -> Tensor:
        """Return which sentences need no further step: (B',) bool."""
        search = self.search
        if search.early_stopping:
            return self.count >= search.beam_size
        # an upper bound: log-probabilities only fall, lengths are at most this, extras are <= 0
        reachable = self.scores[:, 0].double() / self.most**search.length_penalty
        return self.finished[self.held, search.n_best - 1, 0] >= reachable

    def remaining(self) -> Tensor:
        """Return the rows of sentences that are not done."""
        return (~self.done).nonzero()[:, 0]

    def keep(self, rows: Tensor) -> None:
        """Drop all but these rows."""
        for name in ("most", "held", "scores", "done", "count"):
            setattr(self, name, getattr(self, name).index_select(0, rows))

    def hypotheses(self) -> list[list[Hypothesis]]:
        """Return the best finished hypotheses of each of the B sentences, best first."""
        best = self.finished[:, : self.search.returned].cpu().numpy()
        numbers = np.where(np.isneginf(best[..., 0]), 0, best[..., 2]).astype(np.int64)
        lengths, beams = np.divmod(numbers, self.search.beam_size)
        ids = self._ids(lengths, beams)
        return [
            [
                Hypothesis(tuple(tokens[:length].tolist()), float(score), float(log_probability))
                for tokens, length, (score, log_probability, _) in zip(*sentence, strict=True)
                if score > -np.inf
            ]
            for sentence in zip(ids, lengths, best, strict=True)
        ]

    def _ids(self, lengths: Any, beams: Any) -> Any:
        """Return the tokens (B, N, L) of hypotheses, followed from their last beams to the first.

        Args:
            lengths, beams: (B, N) tokens and last beam of each hypothesis.
        """
        held = torch.cat([rows for rows, _ in self.steps]).cpu().numpy()
        links = torch.cat([pairs for _, pairs in self.steps]).cpu().numpy()
        ids = np.zeros((*lengths.shape, len(self.steps)), np.int64)
        end = len(held)
        for length in range(len(self.steps), 0, -1):
            start = end - len(self.steps[length - 1][0])
            rows, own = held[start:end], links[start:end]  # (B',), (B', K, 2)
            last = beams[rows]
            linked = np.take_along_axis(own, last[..., None], axis=1)  # (B', N, 2)
            ids[rows, :, length - 1] = linked[..., 1]
            beams[rows] = np.where(lengths[rows] >= length, linked[..., 0], last)
            end = start
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
    best, place = largest(following, scores, min(2 * beams, beams * size))
    return Candidates(best, place // size, place % size)
