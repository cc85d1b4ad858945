"""What it costs to train from shards: memory, time to the first batch, speed beside memory.

The loader's part is on random ids (see `random_shards`). Prepare's own part is on sentences of
`corpus`, several joined in one.
"""

import multiprocessing
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

import torch
from annotated_types import MinLen

from seqattn.benchmarks.corpus import Corpus
from seqattn.benchmarks.loops import OwnLoop
from seqattn.benchmarks.random_shards import PAIRS, VOCABULARY, epochs, load, loader, write_random
from seqattn.benchmarks.suite import Figures, Row, Sample, Spread, Suite, rates, take_turns
from seqattn.benchmarks.transformer_models import Shape, own_transformer
from seqattn.checking import Count, CountOrNone, checked
from seqattn.data.shard_files import TOKENIZER, WORK
from seqattn.errors import UserError
from seqattn.extras.shards.cleaning import Cleaning
from seqattn.extras.shards.preparing import Plan, count_chunks, make_shards, read_chunks
from seqattn.ops.memory import keep_freed_memory

_KINDS = ("shards", "memory")


@checked
@dataclass(frozen=True, kw_only=True)
class ShardsSuite(Suite):
    """Training from shards, at several sizes of the corpus.

    Args:
        corpus: whose sentences `prepare` is timed on.
        shape: from the size of the vocabulary to the shape of the model that trains.
        pairs: sizes to measure.
        in_memory: the largest size that is measured in memory too.
        batches: that are loaded at each size, an epoch at most.
        max_tokens: of a batch, padding included.
        prepared: pairs that `prepare` is timed on; 0 for none.
        steps, rounds: of training, in turns; no round for none.
        folder: where the shards are written, and removed; None for the system's.
    """

    corpus: Corpus
    shape: Callable[[int], Shape] = Shape
    pairs: Annotated[Sequence[Count], MinLen(1)] = (100_000, 1_000_000, 10_000_000)
    in_memory: CountOrNone = 1_000_000
    batches: Count = 20_000
    max_tokens: Count = 4096
    prepared: CountOrNone = 400_000
    steps: Count = 10
    rounds: CountOrNone = 8
    folder: str | None = None

    def __post_init__(self) -> None:
        if self.rounds and min(self.pairs) > self.in_memory:
            least = f"at least the smallest of suite.pairs ({min(self.pairs):,})"
            raise UserError(
                f"suite.in_memory must be {least} to train from both, got {self.in_memory:,}; "
                "suite.rounds=0 trains from none"
            )

    def measure(self) -> Iterator[Figures]:
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            home = Path(place)
            rows = [row for pairs in self.pairs for row in self._loaders(home, pairs)]
            yield Figures(f"Loading batches of {self.max_tokens:,} tokens", rows)
            if self.rounds:
                yield Figures("Training, in turns", [*self._training(home)])
            if self.prepared:
                yield Figures("Preparing", [self._preparing(home / "prepared")])

    def _loaders(self, home: Path, pairs: int) -> Iterator[Row]:
        write_random(home / str(pairs), pairs, self.seed)
        kinds = _KINDS if pairs <= self.in_memory else _KINDS[:1]
        for kind in kinds:
            loader(kind, home / str(pairs), self.max_tokens)  # which makes the table in memory
            # a process of its own, since memory that was once taken is seldom given back
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as beside:
                work = (kind, home / str(pairs), self.max_tokens, self.batches)
                yield {"pairs": pairs, "from": kind, **beside.submit(load, *work).result()}

    def _training(self, home: Path) -> Iterator[Row]:
        """The same model trained from both, on batches of other rows but of the same sizes."""
        keep_freed_memory()
        largest = max(pairs for pairs in self.pairs if pairs <= self.in_memory)
        loops = {kind: OwnLoop(own_transformer(self.shape(VOCABULARY))) for kind in _KINDS}
        streams = {
            kind: epochs(loader(kind, home / str(largest), self.max_tokens)) for kind in _KINDS
        }

        def train(kind: str, steps: int) -> Sample:
            return loops[kind].run(islice(streams[kind], steps))

        turns = {kind: partial(train, kind) for kind in _KINDS}
        samples = take_turns(turns, [self.steps] * (self.rounds + 1))
        memory = samples["memory"][1:]
        for kind, found in samples.items():
            # of rates: units differ, since the batches are of other rows
            pairs = list(zip(found[1:], memory))
            wall, cpu = (
                Spread.of([a.units / a[n] / (b.units / b[n]) for a, b in pairs]) for n in (0, 1)
            )
            yield {
                "from": kind,
                "target tokens/s": rates(found[1:]),
                "x memory": wall,
                "the same, CPU time": cpu,
            }

    def _preparing(self, home: Path) -> Row:
        """All of `prepare` but the training of the vocabulary, on all cores."""
        texts, tokenizer = self.corpus.texts()
        tokenizer.save(home / TOKENIZER)
        (home / WORK).mkdir()
        processes, cleaning = torch.get_num_threads(), Cleaning()
        pairs = _joined(texts, self.prepared, self.seed)
        began = time.perf_counter()
        chunks = read_chunks(pairs, home, cleaning, self.seed, processes, lambda _: None)
        left, _ = count_chunks(home, chunks, cleaning)
        read = time.perf_counter()
        plan = Plan(home, max(1, round(sum(left) / PAIRS)), [0] * chunks, self.seed)
        entries, _ = make_shards(plan, processes, lambda _: None)
        ended = time.perf_counter()
        tokens = sum(entry.source_tokens + entry.target_tokens for entry in entries)
        return {
            "pairs": self.prepared, "kept": sum(left), "tokens": tokens, "processes": processes,
            "pairs/s read and cleaned": self.prepared / (read - began),
            "tokens/s a core, making shards": tokens / (ended - read) / processes,
            "tokens/s a core, in all": tokens / (ended - began) / processes,
        }  # fmt: skip


def _joined(texts: Sequence[tuple[str, str]], count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Pairs of up to four sentences, hardly two alike."""
    chance = random.Random(seed)
    for _ in range(count):
        some = chance.choices(texts, k=chance.randint(1, 4))
        yield " ".join(source for source, _ in some), " ".join(target for _, target in some)
