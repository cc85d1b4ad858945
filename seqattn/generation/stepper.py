"""Decoding steps: what follows each hypothesis of a batch, asked of a model token by token."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from seqattn.generation.base import (
    Hypothesis,
    LengthLimit,
    Processors,
    SearchMemory,
    SearchModel,
    SearchState,
)
from seqattn.generation.processors import MinimumLength, process
from seqattn.tokens import BOS, EOS, PAD


class Stepper:
    """Extends every hypothesis of a batch by a token at a time.

    Args:
        model: in eval mode.
        memory: of B sources.
        beams: K hypotheses of each.
        limit: whose minimum every hypothesis keeps.
        processors: of what may follow.
        need_weights: keep where in the source each hypothesis has looked, for `coverage`.
    """

    def __init__(
        self,
        model: SearchModel,
        memory: SearchMemory,
        beams: int,
        limit: LengthLimit,
        processors: Processors,
        need_weights: bool = False,
    ) -> None:
        given = processors.values() if isinstance(processors, Mapping) else processors
        minimum = [MinimumLength(limit.minimum)] if limit.minimum else []
        self.processors = [*minimum, *given]
        self.model = model
        self.state: SearchState = model.start(memory, beams=beams)
        self.real = memory.real
        rows, length = memory.ids.shape
        self.said: Tensor | None = None
        """(B, K, L) tokens of each hypothesis, begin left out, where a processor reads them."""
        self.looked: Tensor | None = None
        """(B, K, S) the sum of each hypothesis's weights on each source token, where it is kept."""
        if need_weights:
            self.looked = torch.zeros(rows, beams, length, device=memory.ids.device)

    def step(self, ids: Tensor) -> Tensor:
        """The model's log-probabilities (B, K, V) after one more token each, in float32.

        Padding is at -inf, and so is what processors forbid; the others stay the model's own.

        Args:
            ids: (B, K), the begin at first.
        """
        tokens = ids.flatten()[:, None]
        following = self.model.log_probabilities(tokens, self.state, self.looked is not None)
        if self.looked is not None:
            assert following.weights is not None
            self.looked = self.looked + following.weights[:, -1].float().unflatten(0, ids.shape)
        scores = following.log_probabilities[:, -1].float()
        scores[:, PAD] = -torch.inf
        if self.processors:
            if self.said is None:  # the begin was given
                self.said = ids.new_empty(*ids.shape, 0)
            else:
                self.said = torch.cat((self.said, ids[..., None]), dim=2)
            process(self.processors, scores, self.said.flatten(0, 1))
        return scores.unflatten(0, ids.shape)

    def coverage(self) -> Tensor | None:
        """(B, K) as `coverage` of each hypothesis; None where weights are not kept."""
        return None if self.looked is None else coverage(self.looked, self.real)

    def reorder(self, index: Tensor) -> None:
        """Beam k of sentence b goes on from its beam index[b, k]. Args: index: (B, K)."""
        self.state.reorder(index)
        for name in ("said", "looked"):
            part = getattr(self, name)
            if part is not None:
                rows = index[..., None].expand(-1, -1, part.shape[2])
                setattr(self, name, part.gather(1, rows))

    def keep(self, sentences: Tensor) -> None:
        """Only these sentences go on. Args: sentences: (B',) rows, in the order they keep."""
        self.state.keep(sentences)
        self.real = self.real.index_select(0, sentences)
        for name in ("said", "looked"):
            part = getattr(self, name)
            if part is not None:
                setattr(self, name, part.index_select(0, sentences))


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


def worth_shrinking(live: int, held: int) -> bool:
    """Whether so many rows are done that dropping them pays for the copy.

    A tenth of the rows is the least that leaves, so a batch copies its caches a bounded number of
    times however long it runs.
    """
    return live <= 0.9 * held


Choose = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]


def extend(stepper: Stepper, most: Tensor, beams: int, choose: Choose) -> list[list[Hypothesis]]:
    """Extends each hypothesis by a chosen token until its end or its limit, each for itself.

    Args:
        stepper: before its first step.
        most: (B,) the most tokens of each sentence.
        beams: K.
        choose: from scores (B', K, V), the sentences (B',) that they are of and the number of the
            step, to log-probabilities and tokens, each (B', K).

    Returns:
        K of each sentence, scored by the mean log-probability over their length.
    """
    count, longest, device = len(most), int(most.max()), most.device
    tokens = torch.full((count, beams, longest), EOS, device=device)
    totals = torch.zeros(count, beams, device=device)
    held = torch.arange(count, device=device)  # the sentence of each row still held
    done = torch.zeros(count, beams, dtype=torch.bool, device=device)
    ids = torch.full((count, beams), BOS, device=device)
    for step in range(longest):
        log_probability, ids = choose(stepper.step(ids), held, step)
        ids = ids.masked_fill(done, EOS)
        totals[held] += log_probability.masked_fill(done, 0.0)
        tokens[held, :, step] = ids
        done = done | (ids == EOS) | (step + 1 >= most[held, None])
        going = (~done).any(dim=1).nonzero()[:, 0]
        if len(going) == 0:
            break
        if worth_shrinking(len(going), len(held)):
            stepper.keep(going)
            held, ids, done = held[going], ids[going], done[going]
    return [
        [_finished(row[:length], total) for row, total in zip(rows, sums, strict=True)]
        for rows, length, sums in zip(tokens.tolist(), most.tolist(), totals.tolist(), strict=True)
    ]


def _finished(row: list[int], log_probability: float) -> Hypothesis:
    ids = row[: row.index(EOS)] if EOS in row else row
    length = len(ids) + (EOS in row)
    return Hypothesis(tuple(ids), log_probability / length, log_probability)
