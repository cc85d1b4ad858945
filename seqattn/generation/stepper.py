"""Decoding steps of a batch of hypotheses."""

import sys

import torch
from torch import Tensor

from seqattn.errors import UserError
from seqattn.generation.base import Search, SearchModel, listed
from seqattn.generation.captured_steps import CapturedSteps, replays
from seqattn.generation.processors import MinimumLength, process
from seqattn.models.base import Memory
from seqattn.tokens import EOS, PAD

_TELL = 1_000
"""Number of output tokens between notices about long outputs."""


class Stepper:
    """Decoding of a batch of hypotheses by a model, one token at a time.

    Args:
        search: the search, with its minimum length and processors.
        model: in eval mode.
        memory: memory of B sources.
        beams: K hypotheses per source.
        need_weights: accumulate the attention weights of each hypothesis, for `coverage`.

    Raises:
        UserError: weights are needed but the model has none.
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
        self.captured: CapturedSteps | None = None
        """Steps replayed as CUDA graphs, if the search, the model and its device support it."""
        if search.graph and not need_weights and replays(model, memory.ids.device):
            self.captured = CapturedSteps.of(model, self.state)
        self.source, self.real = memory.ids, memory.real
        rows, length = memory.ids.shape
        self.numbers = [*range(rows)]
        """Number in the batch of each remaining sentence."""
        self.said: Tensor | None = None
        """(B, K, L) tokens of each hypothesis, without begin, if a processor reads them."""
        self.looked: Tensor | None = None
        """(B, K, S) accumulated weights of each hypothesis on each source token, if requested."""
        if need_weights:
            if not model.has_weights:
                raise UserError(
                    "generation.coverage_penalty needs attention weights over the source, which "
                    "this model lacks; set generation.coverage_penalty=0"
                )
            self.looked = torch.zeros(rows, beams, length, device=memory.ids.device)

    def step(self, ids: Tensor) -> Tensor:
        """Return the model's log-probabilities (B, K, V) after one more token each, in float32.

        Padding and tokens forbidden by processors are -inf; the others are unchanged, unless a
        processor changes them.

        Args:
            ids: (B, K), begin in the first step.
        """
        self.steps += 1
        if self.steps % _TELL == 0:
            line = (
                f"outputs have reached {self.steps:,} tokens and are not finished; "
                "generation.limit sets their maximum length"
            )
            print(line, file=sys.stderr, flush=True)
        tokens = ids.flatten()[:, None]
        scores = self._following(tokens, ids.shape)[:, -1].float()
        scores[:, PAD] = -torch.inf
        if self.processors:
            self._process(scores, ids)
        return scores.unflatten(0, ids.shape)

    def _following(self, tokens: Tensor, beams: torch.Size) -> Tensor:
        """Return the model's log-probabilities (B*K, 1, V) after tokens (B*K, 1)."""
        if self.captured is not None:
            return self.captured(tokens)
        following = self.model.log_probabilities(tokens, self.state, self.looked is not None)
        if self.looked is not None:
            assert following.weights is not None
            self.looked = self.looked + following.weights[:, -1].float().unflatten(0, beams)
        return following.log_probabilities

    def _process(self, scores: Tensor, ids: Tensor) -> None:
        """Apply the processors; a hypothesis without any allowed token may end."""
        if self.said is None:  # first step: `ids` are begin
            self.said = ids.new_empty(*ids.shape, 0)
        else:
            self.said = torch.cat((self.said, ids[..., None]), dim=2)
        end = scores[:, EOS].clone()
        source = self.source.repeat_interleave(ids.shape[1], dim=0)
        process(self.processors, scores, self.said.flatten(0, 1), source, self.numbers)
        silent = scores.amax(dim=1) == -torch.inf
        scores[:, EOS] = torch.where(silent, end, scores[:, EOS])

    def coverage(self) -> Tensor | None:
        """Return the source coverage of each hypothesis (B, K); None if not requested.

        The sum over source tokens of log(min(weight on it so far, 1)), at most 0 (Wu et al. 2016,
        arXiv 1609.08144, eq. 14, without its factor beta). A token without any weight counts as
        if it had a tiny one, so that the sum stays finite.
        """
        if self.looked is None:
            return None
        least = torch.finfo(self.looked.dtype).tiny
        logs = self.looked.clamp(min=least, max=1.0).log()
        return logs.masked_fill(~self.real[:, None], 0.0).sum(dim=2)

    def reorder(self, index: Tensor) -> None:
        """Continue beam k of sentence b from its beam index[b, k]. Args: index: (B, K)."""
        self.state.reorder(index)
        for name in ("said", "looked"):
            part = getattr(self, name)
            if part is not None:
                rows = index[..., None].expand(-1, -1, part.shape[2])
                setattr(self, name, part.gather(1, rows))

    def keep(self, sentences: Tensor) -> None:
        """Drop all but these sentences. Args: sentences: (B',) rows, in their new order."""
        self.state.keep(sentences)
        if any(getattr(one, "reads_numbers", False) for one in self.processors):
            self.numbers = [self.numbers[row] for row in sentences.tolist()]
        if self.captured is not None:
            self.captured.discard()
        for name in ("source", "real", "said", "looked"):
            part = getattr(self, name)
            if part is not None:
                setattr(self, name, part.index_select(0, sentences))

    def is_worth_shrinking(self, live: int) -> bool:
        """Return True if enough rows are done for dropping them to pay for copying the others.

        At least a tenth is dropped at a time, or half if steps must then be captured again, so that
        a batch is copied a bounded number of times. Args: live: sentences not done.
        """
        return live <= (0.9 if self.captured is None else 0.5) * len(self.real)
