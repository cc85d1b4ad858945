"""State of a beam search for a batch of sentences, in tensors on the model's device."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqattn.generation.base import Hypothesis
from seqattn.tokens import EOS

if TYPE_CHECKING:
    from seqattn.generation.beam import BeamSearch


class Candidates(NamedTuple):
    """Continuations of a sentence's beams, each (B', N)."""

    scores: Tensor
    """Log-probabilities in nats; -inf for none."""
    parents: Tensor
    """The beams that they continue."""
    tokens: Tensor


class BeamBatch:
    """Live beams and finished hypotheses of each sentence.

    A finished hypothesis is stored as the number n*K + k of beam k after n steps, and each step as
    the parents and tokens of its live beams, so that no step copies hypotheses.

    Args:
        search: its settings, with K beams.
        most: (B,) maximum tokens of each sentence, end included.
    """

    def __init__(self, search: "BeamSearch", most: Tensor) -> None:
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
