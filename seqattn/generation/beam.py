"""Beam search."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from annotated_types import Ge, Le
from torch import Tensor

from seqattn.checking import Count, NotNegative
from seqattn.errors import UserError
from seqattn.generation.base import Hypothesis, Search, SearchModel
from seqattn.generation.stepper import Stepper, worth_shrinking
from seqattn.models.base import Memory
from seqattn.ops.topk import largest
from seqattn.tokens import BOS, EOS


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
            raise UserError(
                f"n_best must be from 1 to generation.beam_size ({self.beam_size}), got "
                f"{self.n_best}"
            )

    @property
    def beams(self) -> int:
        return self.beam_size

    def begin(self, most: int) -> "BeamSentence":
        """Return a search for one sentence. Args: most: maximum tokens, end included."""
        return BeamSentence(self, most)

    def search(
        self, model: SearchModel, memory: Memory, numbers: Sequence[int]
    ) -> list[list[Hypothesis]]:
        most = self.limit.of(memory.real.sum(dim=1), model.max_target_length).tolist()
        sentences = [self.begin(length) for length in most]
        held = list(range(len(sentences)))  # sentences still in the state
        beams, device = self.beam_size, memory.ids.device
        stepper = Stepper(self, model, memory, beams, need_weights=self.coverage_penalty > 0)
        ids = torch.full((len(held), beams), BOS, device=device)
        scores = torch.full((len(held), beams), -torch.inf, device=device)
        scores[:, 0] = 0.0  # all beams are equal at first
        for step in range(max(most)):
            proposals = candidates(stepper.step(ids), scores)
            covered = stepper.coverage()
            extras = (
                torch.zeros_like(scores) if covered is None else covered * self.coverage_penalty
            )
            steps = zip(*(part.tolist() for part in (extras, *proposals)))
            chosen = [
                sentences[number].advance(step + 1, *row)
                for number, row in zip(held, steps, strict=True)
            ]
            live = torch.tensor(chosen, dtype=torch.float64)  # (B, K, 3)
            scores = live[..., 0].float().to(device)
            parents, ids = live[..., 1:].long().to(device).unbind(dim=2)
            remaining = [row for row, number in enumerate(held) if not sentences[number].done]
            if not remaining:
                break
            stepper.reorder(parents)
            if worth_shrinking(len(remaining), len(held)):
                rows = torch.tensor(remaining, device=device)
                stepper.keep(rows)
                held = [held[row] for row in remaining]
                scores, ids = scores[rows], ids[rows]
        return [sentence.best() for sentence in sentences]


def candidates(following: Tensor, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the 2K best continuations of each sentence, enough for K live ones if K of them end.

    Args:
        following: (B, K, V) log-probability of each token after each beam.
        scores: (B, K) log-probability of each beam so far.

    Returns:
        Log-probabilities, beams and tokens, each (B, 2K) or as many as there are, best first.
    """
    _, beams, size = following.shape
    best, place = largest(following, scores, min(2 * beams, beams * size))
    return best, place // size, place % size


class BeamSentence:
    """Search state of one sentence: its live beams and its finished hypotheses."""

    def __init__(self, search: BeamSearch, most: int) -> None:
        self.search = search
        self.most = most
        self.live: list[tuple[int, ...]] = [()] * search.beam_size
        self.finished: list[Hypothesis] = []
        self.done = False

    def advance(
        self, length: int, extras: list[float], *proposals: list[Any]
    ) -> list[tuple[float, int, int]]:
        """Select the best candidates of a step; return score, parent and token of K live beams.

        Args:
            length: tokens of each candidate, end included.
            extras: additional score of a hypothesis that ends now, by its parent.
            proposals: the result of `candidates`, best first.
        """
        beams = self.search.beam_size
        live: list[tuple[float, int, int]] = []
        if not self.done:
            for rank, candidate in enumerate(zip(*proposals, strict=True)):
                score, parent, token = candidate
                if score == -math.inf:
                    continue
                if token == EOS:
                    if rank < beams:
                        self._finish(self.live[parent], score, length, extras[parent])
                elif len(live) < beams:
                    live.append(candidate)
            if length >= self.most:
                for score, parent, token in live:
                    self._finish((*self.live[parent], token), score, length, extras[parent])
            self.live = [(*self.live[parent], token) for _, parent, token in live]
            self.done = length >= self.most or not live or self._is_final(live[0][0], length)
        self.live += [()] * (beams - len(self.live))
        return live + [(-math.inf, 0, EOS)] * (beams - len(live))

    def _finish(
        self, ids: tuple[int, ...], log_probability: float, length: int, extra: float
    ) -> None:
        score = log_probability / length**self.search.length_penalty + extra
        self.finished.append(Hypothesis(ids, score, log_probability))

    def _is_final(self, best_live: float, length: int) -> bool:
        if self.search.early_stopping:
            return len(self.finished) >= self.search.beam_size
        if len(self.finished) < self.search.n_best:
            return False
        # an upper bound: log-probabilities only fall, lengths are at most this, extras are <= 0
        reachable = best_live / self.most**self.search.length_penalty
        return self.best()[-1].score >= reachable

    def best(self) -> list[Hypothesis]:
        """Return the n_best finished hypotheses, best first."""
        ranked = sorted(self.finished, key=lambda hypothesis: -hypothesis.score)
        return ranked[: self.search.n_best]
