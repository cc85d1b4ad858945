"""Decoding steps: what follows each hypothesis of a batch, asked of a model token by token."""

import sys

import torch
from torch import Tensor

from seqattn.errors import UserError
from seqattn.generation.base import Search, SearchModel, listed
from seqattn.generation.processors import MinimumLength
from seqattn.models.base import Memory
from seqattn.tokens import EOS, PAD

_TELL = 1_000
"""Tokens of an output after which a person is told that it goes on, and again."""


class Stepper:
    """Extends every hypothesis of a batch by a token at a time.

    Args:
        search: whose minimum length and processors every hypothesis keeps to.
        model: in eval mode.
        memory: of B sources.
        beams: K hypotheses of each.
        need_weights: keep where in the source each hypothesis has looked, for `coverage`.

    Raises:
        UserError: where the weights of a model are needed that has none.
    """

    def __init__(
        self,
        search: Search,
        model: SearchModel,
        memory: Memory,
        beams: int,
        need_weights: bool = False,
    ) -> None:
        self.processors, minimum = listed(search.processors), search.limit.minimum
        if minimum:
            self.processors.insert(0, MinimumLength(minimum))
        self.model, self.steps = model, 0
        self.state = model.start(memory, beams=beams)
        self.real = memory.real
        rows, length = memory.ids.shape
        self.said: Tensor | None = None
        """(B, K, L) tokens of each hypothesis, begin left out, where a processor reads them."""
        self.looked: Tensor | None = None
        """(B, K, S) the sum of each hypothesis's weights on each source token, where it is kept."""
        if need_weights:
            if not model.has_weights:
                raise UserError(
                    "generation.coverage_penalty needs a model whose attention to the source has "
                    "weights, and this one's has none; set generation.coverage_penalty=0"
                )
            self.looked = torch.zeros(rows, beams, length, device=memory.ids.device)

    def step(self, ids: Tensor) -> Tensor:
        """The model's log-probabilities (B, K, V) after one more token each, in float32.

        Padding is at -inf, and so is what processors forbid; the others stay the model's own.

        Args:
            ids: (B, K), the begin at first.
        """
        self.steps += 1
        if self.steps % _TELL == 0:
            told = "a batch has outputs of {:,} tokens and goes on; generation.limit says how long"
            print(told.format(self.steps), file=sys.stderr, flush=True)
        tokens = ids.flatten()[:, None]
        following = self.model.log_probabilities(tokens, self.state, self.looked is not None)
        if self.looked is not None:
            assert following.weights is not None
            self.looked = self.looked + following.weights[:, -1].float().unflatten(0, ids.shape)
        scores = following.log_probabilities[:, -1].float()
        scores[:, PAD] = -torch.inf
        if self.processors:
            self._process(scores, ids)
        return scores.unflatten(0, ids.shape)

    def _process(self, scores: Tensor, ids: Tensor) -> None:
        """Forbids what processors do; a hypothesis that may say nothing else may end."""
        if self.said is None:  # the begin was given
            self.said = ids.new_empty(*ids.shape, 0)
        else:
            self.said = torch.cat((self.said, ids[..., None]), dim=2)
        end = scores[:, EOS].clone()
        for processor in self.processors:
            processor(scores, self.said.flatten(0, 1))
        silent = scores.amax(dim=1) == -torch.inf
        scores[:, EOS] = torch.where(silent, end, scores[:, EOS])

    def coverage(self) -> Tensor | None:
        """How much of its source each hypothesis (B, K) has looked at; None where it is not kept.

        The sum over source tokens of log(min(weight on it so far, 1)), at most 0 (Wu et al. 2016,
        arXiv 1609.08144, eq. 14, without its factor beta). A token at which no weight ever fell
        counts as if a tiny one had, so that the sum stays finite.
        """
        if self.looked is None:
            return None
        least = torch.finfo(self.looked.dtype).tiny
        logs = self.looked.clamp(min=least, max=1.0).log()
        return logs.masked_fill(~self.real[:, None], 0.0).sum(dim=2)

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
        for name in ("real", "said", "looked"):
            part = getattr(self, name)
            if part is not None:
                setattr(self, name, part.index_select(0, sentences))


def worth_shrinking(live: int, held: int) -> bool:
    """Whether so many rows are done that dropping them pays for the copy.

    A tenth of the rows is the least that leaves, so a batch copies its caches a bounded number of
    times however long it runs.
    """
    return live <= 0.9 * held
