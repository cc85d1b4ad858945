"""A search over any number of sources: batches, in this process or shared out to several."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from seqattn.attention.base import length_key
from seqattn.attention.watched import Watched
from seqattn.checking import CountOrNone
from seqattn.errors import UserError
from seqattn.generation.base import (
    Hypothesis,
    Progress,
    Search,
    SearchModel,
    WorkersOrNone,
    inference,
)
from seqattn.generation.workers import Workers, usual_workers
from seqattn.ops.layers import packed
from seqattn.ops.memory import ran_out
from seqattn.tokens import PAD

_SHARED = 128
"""Sources in a batch that processes share out however few there are."""
_HYPOTHESES = 4_096
"""Hypotheses that are extended at once, each with scores of a whole vocabulary and a cache."""


class Batch(NamedTuple):
    """Sources that are searched together, and each one's place in the user's input."""

    sources: list[Sequence[int]]
    places: list[int]


Found = list[list[Hypothesis]]
"""Hypotheses of each source, best first."""


@dataclass(frozen=True)
class Generator:
    """Runs a search over any number of sources: sorted by length, batched, in their own order.

    Args:
        model: the model, a module.
        search: greedy, beam, sampling or minimum Bayes risk.
        batch_size: sources in a batch at most; 0 for no such limit. On a CPU a batch of more than
            128 is no more than a sixteenth of all sources, so that processes can share them. The
            hypotheses of a batch are 4,096 at most, whatever it is.
        batch_tokens: padded source tokens in a batch at most; 0 for no such limit.
        workers: processes of one thread each that share out the batches on a CPU, as many as there
            are batches at most; None for as many as torch has threads. They search the batches that
            one process would, and so find the same. With a single batch none is started.
        open_workers: those of `open`.

    Raises:
        UserError: for a minimum length that no output of the model can reach.
    """

    model: SearchModel
    search: Search
    batch_size: CountOrNone = 128
    batch_tokens: CountOrNone = 16_384
    workers: WorkersOrNone = None
    open_workers: Workers[Batch, Found] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.search.limit.check(self.model)

    def generate(
        self,
        sources: Sequence[Sequence[int]],
        places: Sequence[int] | None = None,
        progress: Progress | None = None,
    ) -> list[list[Hypothesis]]:
        """Hypotheses for each source, best first.

        Args:
            sources: ids of each source, end included; an empty one gets one empty hypothesis.
            places: each source's place in the user's input; None where these are all of it.
            progress: called after each batch.

        Raises:
            UserError: where a source is longer than the model's positions, where memory runs out,
                or where workers cannot be used.
        """
        limit = self.model.max_source_length
        for number, source in enumerate(sources, start=1):
            if limit is not None and len(source) > limit:
                raise UserError(
                    f"source {number} has {len(source)} tokens and this model reads at most "
                    f"{limit}; shorten it, or train with a larger {length_key(self.model, limit)}"
                )
        results: list[list[Hypothesis]] = [[Hypothesis((), 0.0, 0.0)] for _ in sources]
        places = range(len(sources)) if places is None else places
        done, total = 0, sum(len(source) > 0 for source in sources)
        rows = [*self._batches(sources)]
        batches = [Batch([sources[n] for n in part], [places[n] for n in part]) for part in rows]
        with self._searched(batches) as searched:
            for at, found in searched:
                for number, hypotheses in zip(rows[at], found, strict=True):
                    results[number] = hypotheses
                done += len(found)
                if progress is not None:
                    progress(done, total)
        return results

    @contextmanager
    def open(self) -> Iterator["Generator"]:
        """The same with workers that stay from one call to the next, while the block runs."""
        with self._workers(self._count()) as workers:
            yield replace(self, open_workers=workers)

    @contextmanager
    def _searched(self, batches: Sequence[Batch]) -> Iterator[Iterator[tuple[int, Found]]]:
        """Each batch's number and hypotheses, as they come."""
        count = min(self._count(), len(batches))
        if count <= 1:
            with self.ready() as search:
                yield enumerate(map(search, batches))
            return
        pool = nullcontext(self.open_workers) if self.open_workers else self._workers(count)
        with pool as workers:
            yield workers.results(batches)

    def _workers(self, count: int) -> Workers[Batch, Found]:
        return Workers(count, replace(self, open_workers=None).ready)

    def _count(self) -> int:
        """How many processes may search; one while weights are watched, to show them here."""
        if any(isinstance(part, Watched) and part.watched for part in self._model.modules()):
            return 1
        device = self._device
        if device.type == "cpu":
            return usual_workers() if self.workers is None else self.workers
        if self.workers is not None and self.workers > 1:
            raise UserError(f"generation.workers are for a CPU; on {device} leave them out")
        return 1

    @property
    def _model(self) -> nn.Module:
        assert isinstance(self.model, nn.Module)
        return self.model

    @property
    def _device(self) -> torch.device:
        return next(self._model.parameters()).device

    def _largest(self, sources: int) -> int:
        """How many of so many sources a batch holds at most."""
        largest = self.batch_size or sources
        if self.batch_size and self._device.type == "cpu":
            largest = min(largest, max(_SHARED, math.ceil(sources / 16)))
        return min(largest, max(1, _HYPOTHESES // self.search.beams))

    @contextmanager
    def ready(self) -> Iterator[Callable[[Batch], Found]]:
        """The search of one batch, in this process, with a model that is ready for it."""
        with inference(self._model) as device, packed(self._model):

            def search(batch: Batch) -> Found:
                rows = [torch.tensor(source, dtype=torch.long) for source in batch.sources]
                ids = pad_sequence(rows, batch_first=True, padding_value=PAD).to(device)
                try:
                    return self.search.search(self.model, self.model.encode(ids), batch.places)
                except RuntimeError as error:
                    if ran_out(error):
                        raise UserError(_too_large(batch)) from error
                    raise

            yield search

    def _batches(self, sources: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """Numbers of the non-empty sources, longest first, so that memory runs out at once."""
        largest = self._largest(len(sources))
        order = sorted((n for n, s in enumerate(sources) if len(s)), key=lambda n: -len(sources[n]))
        batch: list[int] = []
        for number in order:
            longest = len(sources[batch[0]]) if batch else 0
            over = self.batch_tokens and longest * (len(batch) + 1) > self.batch_tokens
            if batch and (over or len(batch) == largest):
                yield batch
                batch = []
            batch.append(number)
        if batch:
            yield batch


def _too_large(batch: Batch) -> str:
    """What to do where a batch does not fit into the memory."""
    count, longest = len(batch.sources), max(map(len, batch.sources))
    if count == 1:
        return f"a source of {longest} tokens is too large for the memory; shorten it"
    return (
        f"a batch of {count} sources of up to {longest} tokens is too large for the memory; set "
        f"generation.batch_size={count // 2}, or fewer generation.workers"
    )
