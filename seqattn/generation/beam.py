"""Beam search."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Le
from torch import Tensor

from seqattn.checking import BadValue, Count, NotNegative
from seqattn.generation.base import Hypothesis, Search, SearchModel
from seqattn.generation.beam_batch import BeamBatch, Candidates
from seqattn.generation.stepper import Stepper
from seqattn.models.base import Memory
from seqattn.ops.topk import largest
from seqattn.tokens import BOS


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
            proposed = candidates(stepper.step(ids), batch.scores)
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
