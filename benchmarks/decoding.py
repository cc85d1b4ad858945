"""Decoding speed: our greedy and beam search against those of other toolkits.

The sources are sorted by length, and every output is forced to the same number of tokens, so
all generate equally many regardless of their random weights. In every round each contestant decodes
all sources in turn, each in its own process. Ratios are computed within a round; their median
is reported with minimum and maximum.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, get_args

import torch
from annotated_types import Ge, Le, MinLen

from benchmarks.arithmetic import at_full_rate, forward_work
from benchmarks.contestants import (
    LIMIT,
    Allocator,
    Contestant,
    ContestantName,
    Entry,
    Precision,
    Setting,
    compared,
    entries,
    started,
)
from benchmarks.corpus import Corpus, Rows
from benchmarks.peers import own
from benchmarks.suite import Figures, Sample, Suite, profiled, take_turns
from benchmarks.transformer_models import Shape
from seqattn.checking import Count, CountOrNone

Work = tuple[int, Rows]
"""Beam sizes, and numbers of sources."""


@dataclass(frozen=True, kw_only=True)
class DecodingSuite(Suite):
    """Decoding speed against CTranslate2, Eole, Joey NMT and `MarianMTModel.generate`.

    Args:
        corpus: corpus of the sources.
        shape: function from vocabulary size to the shape of all models.
        contestants: names; those that are not installed are skipped.
        precisions: precisions, for contestants that support them.
        allocators: allocators of the others' processes: default, or keeps to keep freed memory.
        workers: workers of `threads` each that divide the sentences, for contestants with workers.
        sentences: use the first N sentences of the test split; 0 for all.
        beams: beam sizes; 1 is greedy search.
        length: tokens of every output.
        batch_size: sentences in a batch.
        rounds: number of rounds.
        peer_python: Python with CTranslate2, Eole and Joey NMT; None for this one.
        profile: profile our own decoding instead of comparing.
    """

    corpus: Corpus
    shape: Callable[[int], Shape] = Shape
    contestants: Sequence[ContestantName] = get_args(ContestantName)
    precisions: Annotated[Sequence[Precision], MinLen(1)] = ("fp32", "bf16", "int8")
    allocators: Annotated[Sequence[Allocator], MinLen(1)] = ("default",)
    workers: Annotated[int, Ge(1), Le(1000)] = 1
    sentences: CountOrNone = 200
    beams: Annotated[Sequence[Annotated[int, Ge(1), Le(1000)]], MinLen(1)] = (1, 5)
    length: Annotated[int, Ge(1), Le(512)] = 32
    batch_size: Count = 64
    rounds: Count = 5
    peer_python: str | None = None
    profile: bool = False

    def measure(self) -> Iterator[Figures]:
        sources, vocabulary = self.corpus.sentences(self.sentences)
        shape, threads = self.shape(vocabulary), torch.get_num_threads()
        rows = [list(row) for row in sorted(sources, key=len, reverse=True)]
        if self.profile:
            yield from self._profiles(shape, rows[: self.batch_size])
            return
        wanted = entries("decoding", self.contestants, self.precisions, self.allocators)
        setting = Setting(shape, threads, self.workers, self.seed, self.peer_python)
        halves = [kind for kind in self.precisions if kind != "int8"]
        limits = {Entry(LIMIT, kind): partial(self._at_full_rate, shape, kind) for kind in halves}
        with started(wanted, setting) as running:
            torch.set_num_threads(threads * self.workers)  # for the arithmetic
            for beams in self.beams:
                decode = {entry: partial(self._decode, one) for entry, one in running.items()}
                for one in decode.values():
                    one((beams, rows[: self.batch_size]))
                samples = take_turns({**decode, **limits}, [(beams, rows)] * self.rounds)
                search = "greedy" if beams == 1 else f"beam {beams}"
                title = f"Decoding, {search}, {len(rows):,} sentences of {self.length} tokens"
                each = f"workers={self.workers} threads={threads}"
                yield Figures(f"{title}, {each}", compared(running, samples, "tokens"))
            torch.set_num_threads(threads)

    def _decode(self, contestant: Contestant, work: Work) -> Sample:
        beams, rows = work
        return Sample(*contestant.ask("decode", rows, beams, self.length, self.batch_size))

    def _at_full_rate(self, shape: Shape, precision: str, work: Work) -> Sample:
        beams, rows = work
        lengths = [self.length] * len(rows)
        least = forward_work(shape, [*map(len, rows)], lengths, beams)
        return at_full_rate(least, precision, sum(lengths))

    def _profiles(self, shape: Shape, rows: Rows) -> Iterator[Figures]:
        torch.manual_seed(self.seed)
        ours = own.Contestant(vars(shape), "fp32", 1, 1)
        for beams in self.beams:
            decode = partial(ours.decode_all, rows, beams, self.length, self.batch_size)
            decode()
            yield profiled(f"Our search, beam size {beams}", decode, "position", self.length)
