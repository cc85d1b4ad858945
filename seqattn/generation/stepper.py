"""Decoding steps of a batch of hypotheses, and the loop of them."""

import sys
from typing import Any

import torch
from torch import Tensor

from seqattn.errors import UserError
from seqattn.generation.base import Search, SearchModel, listed
from seqattn.generation.captured_steps import replayed
from seqattn.generation.processors import process
from seqattn.generation.running import Running
from seqattn.models.base import Memory
from seqattn.ops.gpu.graphs import LateReader
from seqattn.tokens import EOS, PAD

_NOTICE_EVERY = 1_000
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
        self.processors = listed(search.processors)
        self.search, self.model, self.memory, self.beams = search, model, memory, beams
        self.state: Any = model.start(memory, beams=beams)
        self.steps = 0
        self.source, self.real = memory.ids, memory.real
        rows, length = memory.ids.shape
        self.numbers = [*range(rows)]
        """Number in the batch of each remaining sentence."""
        self.prefix: Tensor | None = None
        """(B, K, L) tokens of each hypothesis, without begin, if a processor reads them."""
        self.coverage: Tensor | None = None
        """(B, K, S) accumulated weights of each hypothesis on each source token, if requested."""
        if need_weights:
            if not model.has_weights:
                raise UserError(
                    "generation.coverage_penalty needs attention weights over the source, which "
                    "this model lacks; set generation.coverage_penalty=0"
                )
            self.coverage = torch.zeros(rows, beams, length, device=memory.ids.device)

    def step(self, ids: Tensor) -> Tensor:
        """Return the model's log-probabilities (B, K, V) after one more token each, in float32.

        Padding and tokens forbidden by processors are -inf; the others are unchanged, unless a
        processor changes them.

        Args:
            ids: (B, K), begin in the first step.
        """
        self.begin()
        tokens = ids.flatten()[:, None]
        scores = self._following(tokens, ids.shape)[:, -1].float()
        scores[:, PAD] = -torch.inf
        minimum = self.search.limit.minimum
        if minimum or self.processors:
            end = scores[:, EOS].clone()
            scores[:, EOS].masked_fill_(self.position < minimum, -torch.inf)
            if self.processors:
                self._process(scores, ids)
            silent = scores.amax(dim=1) == -torch.inf  # those without any allowed token may end
            scores[:, EOS] = torch.where(silent, end, scores[:, EOS])
        return scores.unflatten(0, ids.shape)

    @property
    def position(self) -> Tensor:
        """(1,) index of the last step, from 0."""
        table: Any = getattr(self.state, "table", None)
        if table is not None:  # only the device knows it in a captured step
            return table.token_index
        return torch.full((1,), self.steps - 1, device=self.real.device)

    def begin(self) -> None:
        """Count a step."""
        self.steps += 1
        if self.steps % _NOTICE_EVERY == 0:
            line = (
                f"outputs have reached {self.steps:,} tokens and are not finished; "
                "generation.limit sets their maximum length"
            )
            print(line, file=sys.stderr, flush=True)

    def _following(self, tokens: Tensor, beams: torch.Size) -> Tensor:
        """Return the model's log-probabilities (B*K, 1, V) after tokens (B*K, 1)."""
        following = self.model.log_probabilities(tokens, self.state, self.coverage is not None)
        if self.coverage is not None:
            assert following.weights is not None
            self.coverage = self.coverage + following.weights[:, -1].float().unflatten(0, beams)
        return following.log_probabilities

    def _process(self, scores: Tensor, ids: Tensor) -> None:
        """Apply the processors."""
        if self.prefix is None:  # first step: `ids` are begin
            self.prefix = ids.new_empty(*ids.shape, 0)
        else:
            self.prefix = torch.cat((self.prefix, ids[..., None]), dim=2)
        source = self.source.repeat_interleave(ids.shape[1], dim=0)
        process(self.processors, scores, self.prefix.flatten(0, 1), source, self.numbers)

    def coverage_score(self) -> Tensor | None:
        """Return the source coverage of each hypothesis (B, K); None if not requested.

        The sum over source tokens of log(min(weight on it so far, 1)), at most 0 (Wu et al. 2016,
        arXiv 1609.08144, eq. 14, without its factor beta). A token without any weight counts as
        if it had a tiny one, so that the sum stays finite.
        """
        if self.coverage is None:
            return None
        least = torch.finfo(self.coverage.dtype).tiny
        logs = self.coverage.clamp(min=least, max=1.0).log()
        return logs.masked_fill(~self.real[:, None], 0.0).sum(dim=2)

    def reorder(self, index: Tensor) -> None:
        """Continue beam k of sentence b from its beam index[b, k]. Args: index: (B, K)."""
        self.state.reorder(index)
        for name in ("prefix", "coverage"):
            values = getattr(self, name)
            if values is not None:
                rows = index[..., None].expand(-1, -1, values.shape[2])
                setattr(self, name, values.gather(1, rows))

    def keep(self, sentences: Tensor) -> None:
        """Drop all but these sentences. Args: sentences: (B',) rows, in their new order."""
        self.state.keep(sentences)
        if any(getattr(processor, "reads_numbers", False) for processor in self.processors):
            self.numbers = [self.numbers[row] for row in sentences.tolist()]
        for name in ("source", "real", "prefix", "coverage"):
            values = getattr(self, name)
            if values is not None:
                setattr(self, name, values.index_select(0, sentences))

    def next(self, running: Running) -> Running:
        """Advance hypotheses by a step, and return them."""
        running.advance(self)
        return running

    def shrink(self, running: Running, live: int) -> Running:
        """Return the hypotheses of `live` sentences, if dropping others pays for copying these.

        At least a tenth is dropped at a time, so that a batch is copied a bounded number of times.
        """
        if live <= 0.9 * len(self.real):
            rows = running.rows(live)
            running.keep(rows)
            self.keep(rows)
        return running

    def run(self, running: Running) -> dict[str, Tensor]:
        """Run steps until no hypothesis goes on, and return the outcome of `running`.

        On a GPU they are replayed as CUDA graphs if model and search support it. Unless a step of
        the search reads numbers itself, the loop waits for none, and so ends a few steps late.

        Args:
            running: all hypotheses, before their first token.
        """
        longest = int(running.max_length.max())
        # steps that read numbers wait anyway
        waits = self.search.captured_as is None or len(self.processors) > 0
        remaining = LateReader(len(running.sentences), waits=waits)
        with replayed(self, running, longest) as (steps, running):
            for _ in range(longest):
                running = steps.next(running)
                live = remaining(running.live)
                if not live:
                    break
                running = steps.shrink(running, live)
            return running.store()
