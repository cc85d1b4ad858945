"""Random ids as a prepared corpus of any size, and what loading them costs a process."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from seqattn.benchmarks.suite import Row
from seqattn.data.arrow_tables import NUMBER, NUMBERS, table_of
from seqattn.data.batch import Batch
from seqattn.data.loader import BatchLoader, TokenRows
from seqattn.data.options import LoaderOptions
from seqattn.data.shard_files import (
    FORMAT,
    Manifest,
    Shard,
    describe_shard,
    ids_file,
    read_manifest,
    write_lengths,
)
from seqattn.data.shard_windows import ShardedCorpus
from seqattn.data.shards import ShardRows
from seqattn.data.token_dataset import TokenDataset
from seqattn.data.vocabulary import TokenizerConfig
from seqattn.extras.shards.preparing import shard_name
from seqattn.storage import write_whole
from seqattn.tokens import EOS

PAIRS, VOCABULARY = 1 << 17, 8000
"""Of a shard, and of the ids."""
_WINDOW = 4  # shards in play, as conf/data/shards.yaml has it


def write_random(home: Path, pairs: int, seed: int) -> None:
    """A prepared directory of random ids, lengths as of sentences, without a vocabulary."""
    home.mkdir(parents=True)
    entries, tables = [], []
    for number, first in enumerate(range(0, pairs, PAIRS)):
        chance, rows = np.random.default_rng([seed, number]), min(PAIRS, pairs - first)
        source = np.clip(chance.lognormal(3.0, 0.6, rows), 2, 200)
        target = np.clip(source * chance.lognormal(0.05, 0.25, rows), 2, 200)
        lengths = [side.astype(np.int64) for side in (source, target)]
        ids = [chance.integers(EOS + 1, VOCABULARY, n.sum(), np.uint16) for n in lengths]
        path = home / shard_name(number)
        write_whole(path, [ids_file(lengths, ids)])
        entry, table = describe_shard(path)
        entries.append(entry)
        tables.append(table)
    manifest = Manifest(
        format=FORMAT, settings={}, tokenizer=TokenizerConfig(),
        fingerprint="", counts={"read": pairs}, train=entries, splits={},
        lengths_sha256=write_lengths(home, np.concatenate(tables)),
    )  # fmt: skip
    manifest.write(home)


def loader(kind: str, home: Path, max_tokens: int) -> BatchLoader[Batch]:
    """Batches of such a directory, from its shards or from one table as `tokenize` makes it."""
    options = LoaderOptions(max_tokens=max_tokens)
    rows: TokenRows[Batch]
    if kind == "shards":
        corpus = ShardedCorpus(home, read_manifest(home), _WINDOW, 0, options)
        rows = ShardRows([corpus], options, lambda _: None)
    else:
        columns = dict.fromkeys(("source", "target"), NUMBERS)
        columns |= dict.fromkeys(("head", "begin", "end"), NUMBER)
        rows = TokenDataset(table_of(_rows(home), columns, str(home), home), options)
    return BatchLoader(rows, options, seed=1)


def _rows(home: Path) -> Iterator[dict[str, Any]]:
    for entry in read_manifest(home).train:
        shard = Shard(home / entry.name)
        for first in range(0, len(shard), 1000):
            some = np.arange(first, min(first + 1000, len(shard)))
            for source, target in zip(shard.rows(0, some), shard.rows(1, some), strict=True):
                yield {"source": source, "target": target, "head": 0, "begin": -1, "end": -1}


def epochs(batches: BatchLoader[Batch]) -> Iterator[Batch]:
    """The batches of epoch after epoch."""
    epoch = 0
    while True:
        batches.set_epoch(epoch)
        yield from batches
        epoch += 1


def load(kind: str, home: Path, max_tokens: int, count: int) -> Row:
    """Loads so many batches; what that took of time and of this process's memory.

    A table in memory is to be there already.
    """
    with _peak() as memory:
        began = time.perf_counter()
        batches = islice(iter(loader(kind, home, max_tokens)), count)
        first = next(batches)
        waited, began = time.perf_counter() - began, time.perf_counter()
        number, tokens = 1, 0
        positions, real = _places(first)
        for batch in batches:
            number += 1
            tokens += batch.target_tokens
            positions, real = (a + b for a, b in zip((positions, real), _places(batch)))
        seconds = time.perf_counter() - began
    return {
        "MB": max(memory) - memory[0],
        "seconds to the first batch": waited,
        "batches": number,
        "padding": 1 - real / positions,
        "target tokens/s": tokens / seconds if number > 1 else None,
    }


def _places(batch: Batch) -> tuple[int, int]:
    """How many places a batch has, and how many of them hold a token."""
    positions = batch.source.numel() + batch.target_output.numel()
    return positions, batch.source_tokens + batch.target_tokens


@contextmanager
def _peak() -> Iterator[list[float]]:
    """Megabytes of this process that belong to no file, every few milliseconds."""
    found, ended = [_anonymous()], threading.Event()

    def watch() -> None:
        while not ended.wait(0.005):
            found.append(_anonymous())

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield found
    finally:
        ended.set()
        watching.join()


def _anonymous() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith("RssAnon")]
    return int(line.split()[1]) / 1000
