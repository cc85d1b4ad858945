"""Generation for any number of sources and their windows, in batches, by several processes."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence

from seqattn.attention.base import length_key
from seqattn.attention.observation import Observable
from seqattn.errors import UserError
from seqattn.generation.base import (
    Hypothesis,
    Progress,
    Search,
    SearchModel,
    inference,
)
from seqattn.generation.constraints import Constraints
from seqattn.generation.ensemble import Ensemble
from seqattn.generation.workers import Workers, usual_workers
from seqattn.models.base import Seq2SeqModel
from seqattn.ops.layers import packed
from seqattn.ops.memory import ran_out, to_device
from seqattn.tokens import PAD

_SHARED = 128
"""Batches of up to this size are not made smaller to be shared between processes."""
_HYPOTHESES = 4_096
"""Maximum hypotheses extended in parallel, each with vocabulary scores and a cache."""
_WINDOW = 0x9E3779B1
"""Increment of the index of consecutive windows, so that each gets its own random numbers: a CPU
generator uses only the last 32 bits of a seed, which multiples of this odd number cover."""
_LINE = 0x85EBCA77
"""Increment of the index of consecutive lines of a text, for the same reason."""


class Batch(NamedTuple):
    """Sources that are searched together, and their indices in the user's input."""

    sources: list[Sequence[int]]
    indices: list[int]
    constraints: Sequence[Constraints] | None = None


Hypotheses = list[list[Hypothesis]]
"""Hypotheses of each source, best first."""
Windows = Sequence[Sequence[int]]
"""Ids of each window of a source; a single one for an unsplit source."""


class InWindow(NamedTuple):
    """A hypothesis, and the number of its window in the source."""

    hypothesis: Hypothesis
    window: int


@dataclass(frozen=True)
class Generator:
    """A model with a search for any number of sources, batched by length; keeps their order.

    Args:
        model: the model, or an ensemble.
        search: greedy, beam, sampling or minimum Bayes risk, with its sizes of batches.
        open_workers: workers started by `open`.

    Raises:
        UserError: no output of the model can reach the minimum length.
    """

    model: Seq2SeqModel | Ensemble
    search: Search
    open_workers: Workers[Batch, Hypotheses] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.search.limit.check(self.model)

    def generate(
        self,
        sources: Sequence[Sequence[int]],
        indices: Sequence[int] | None = None,
        progress: Progress | None = None,
        constraints: Sequence[Constraints] | None = None,
    ) -> list[list[Hypothesis]]:
        """Return hypotheses for each source, best first.

        Args:
            sources: ids of each source, end included; an empty one gets one empty hypothesis.
            indices: each source's index in the user's input; None if `sources` is all of it.
            progress: called after each batch.
            constraints: of each source; None for none.

        Raises:
            UserError: a source or prefix is longer than the maximum, memory runs out, or workers
                cannot be used.
        """
        limit = self.model.max_source_length
        indices = range(len(sources)) if indices is None else indices
        for index, source in zip(indices, sources):
            if limit is not None and len(source) > limit:
                number = index % _LINE + 1
                raise UserError(
                    f"source {number} has {len(source)} tokens, but this model reads at most "
                    f"{limit}; shorten it, or train with a larger {length_key(self.model, limit)}"
                )
        results: list[list[Hypothesis]] = [[Hypothesis((), 0.0, 0.0)] for _ in sources]
        done, total = 0, sum(len(source) > 0 for source in sources)
        rows = [*self._batches(sources)]
        for source, index, own in zip(sources, indices, constraints or ()):
            check_prefix(self.model, self.search, len(source), index, own)
        parts: Any = (sources, indices, constraints)
        batches = [Batch(*(one and [one[n] for n in part] for one in parts)) for part in rows]
        with self._searched(batches) as searched:
            for at, outputs in searched:
                for number, hypotheses in zip(rows[at], outputs, strict=True):
                    results[number] = hypotheses
                done += len(outputs)
                if progress is not None:
                    progress(done, total, sum(len(best[0].ids) + 1 for best in outputs))
        return results

    def generate_windows(
        self,
        sources: Sequence[Windows],
        indices: Sequence[int] | None = None,
        progress: Progress | None = None,
        constraints: Sequence[Constraints] | None = None,
    ) -> Hypotheses:
        """Return hypotheses for each source from all of its windows, best scores first.

        Args: as `search_windows`.
        """
        searched = self.search_windows(sources, indices, progress, constraints)
        return [[one.hypothesis for one in several] for several in searched]

    def search_windows(
        self,
        sources: Sequence[Windows],
        indices: Sequence[int] | None = None,
        progress: Progress | None = None,
        constraints: Sequence[Constraints] | None = None,
    ) -> list[list[InWindow]]:
        """Return hypotheses with their windows, at most as many per source as for a single window.

        Args:
            sources: windows of each source.
            indices, constraints: as `generate`; all windows of a source have its constraints.
            progress: called after each batch, with the share of windows done in units of sources.
        """
        windows = [window for several in sources for window in several]
        starts = range(len(sources)) if indices is None else indices
        each = [
            index + number * _WINDOW
            for index, several in zip(starts, sources)
            for number, _ in enumerate(several)
        ]
        if constraints is not None:
            constraints = [c for c, parts in zip(constraints, sources, strict=True) for _ in parts]

        def on_batch(done: int, total: int, tokens: int) -> None:
            if progress is not None:
                progress(done * len(sources) // total, len(sources), tokens)

        outputs = iter(self.generate(windows, each, on_batch, constraints))
        results = []
        for source in sources:
            parts = [next(outputs) for _ in source]
            best: dict[tuple[int, ...], InWindow] = {}
            candidates = [InWindow(one, n) for n, part in enumerate(parts) for one in part]
            for one in sorted(candidates, key=lambda one: -one.hypothesis.score):
                best.setdefault(one.hypothesis.ids, one)
            results.append(list(best.values())[: max(map(len, parts))])
        return results

    @contextmanager
    def open(self) -> Iterator["Generator"]:
        """Return the same generator with workers that persist between calls within the block."""
        with Workers(self._count(), self.ready) as workers:
            yield replace(self, open_workers=workers)

    @contextmanager
    def _searched(self, batches: Sequence[Batch]) -> Iterator[Iterator[tuple[int, Hypotheses]]]:
        """Yield an iterator of each batch's number and hypotheses, in order of completion."""
        count, opened = min(self._count(), len(batches)), self.open_workers
        if count <= 1:
            with self.ready() as search:
                yield enumerate(map(search, batches))
            return
        with nullcontext(opened) if opened else Workers(count, self.ready) as workers:
            yield workers.results(batches)

    def _count(self) -> int:
        """Return the number of processes; 1 if weights are observed, to do so in this process."""
        parts = self.model.modules()
        if any(isinstance(part, Observable) and part.is_observed for part in parts):
            return 1
        workers = self.search.workers
        if self.device.type == "cpu":
            return usual_workers() if workers is None else workers
        if workers is not None and workers > 1:
            raise UserError(f"generation.workers needs device=cpu, got {self.device}; remove it")
        return 1

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return next(self.model.parameters()).device

    @contextmanager
    def ready(self) -> Iterator[Callable[[Batch], Hypotheses]]:
        """Prepare the model for inference, and yield a function that searches one batch."""
        with inference(self.model), packed(self.model):
            yield self._search

    def _search(self, batch: Batch) -> Hypotheses:
        rows = [torch.tensor(source, dtype=torch.long) for source in batch.sources]
        ids = to_device(pad_sequence(rows, batch_first=True, padding_value=PAD), self.device)
        search = self.search if batch.constraints is None else self.search.under(batch.constraints)
        try:
            memory: Any = self.model.encode(ids)
            return search.search(self.model, memory, batch.indices)
        except RuntimeError as error:
            if ran_out(error):
                raise UserError(too_large(batch)) from error
            raise

    def _batches(self, sources: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """Yield batches of non-empty source indices, longest first, so memory runs out early."""
        size, tokens = self.search.batch_size, self.search.batch_tokens
        largest = size or len(sources)
        if size and self.device.type == "cpu":
            largest = min(largest, max(_SHARED, math.ceil(len(sources) / 16)))
        largest = min(largest, max(1, _HYPOTHESES // self.search.beams))
        order = sorted((n for n, s in enumerate(sources) if len(s)), key=lambda n: -len(sources[n]))
        batch: list[int] = []
        for number in order:
            longest = len(sources[batch[0]]) if batch else 0
            over = tokens and longest * (len(batch) + 1) > tokens
            if batch and (over or len(batch) == largest):
                yield batch
                batch = []
            batch.append(number)
        if batch:
            yield batch


def line_index(text: int, line: int = 0) -> int:
    """Return the index of a line of a text, so that each gets its own random numbers.

    Args: text, line: the index of the text in the user's input, and the line's in the text.
    """
    return text + line * _LINE


def line_indices(texts: Iterable[int]) -> list[int]:
    """Return the index of each line, from that of its text."""
    lines, indices = Counter[int](), []
    for text in texts:
        indices.append(line_index(text, lines[text]))
        lines[text] += 1
    return indices


def check_prefix(model: SearchModel, search: Search, size: int, index: int, own: Any) -> None:
    """Raise UserError if the outputs of a source of `size` tokens cannot hold their prefix."""
    tokens = len(own.ids) + (not own.whole)
    limit = int(search.limit.of(torch.tensor([size]), model.max_target_length))
    if size and tokens > limit:
        number = index % _LINE + 1
        raise UserError(
            f"prefix has {tokens} tokens, but the output of input {number:,} is limited to "
            f"{limit}; increase generation.limit.extra"
        )


def too_large(batch: Batch) -> str:
    """Return advice for a batch that does not fit into memory."""
    count, longest = len(batch.sources), max(map(len, batch.sources))
    if count == 1:
        return f"out of memory for a source of {longest} tokens; shorten it"
    return (
        f"out of memory for a batch of {count} sources of up to {longest} tokens; set "
        f"generation.batch_size={count // 2}, or lower generation.workers"
    )
