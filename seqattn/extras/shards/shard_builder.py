"""Shards from a corpus of any size: read and clean once, shuffle, encode.

Texts are written to disk in chunks, each in random order. Shard k takes the k-th part of every
chunk and shuffles it, so rows are distributed over the shards at random, with at most one shard in
memory. Each file is written atomically, and its contents depend only on the corpus, the settings
and the seed, so existing files are kept after an interruption. Every worker imports this
module, so it imports neither torch nor `datasets`.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.extras.shards.cleaning import Cleaning, cleaned, first_of_each
from seqattn.extras.shards.parallel import spread, workers
from seqattn.extras.shards.shard_files import (
    SIDES,
    WORK,
    Ints,
    ShardEntry,
    arrow_file,
    describe_shard,
    ids_file,
    read_batch,
)
from seqattn.storage import write_whole

Pair = tuple[str, str]
OnProgress = Callable[[int], object]
"""Callback with the number done."""
ROWS, CHARACTERS = 1 << 16, 1 << 26
"""Maximum size of a chunk while reading."""
_ENCODED = 1000  # texts encoded together


class Plan(NamedTuple):
    """Inputs and output directory for building shards."""

    output_dir: Path
    shards: int
    held_out: list[int]
    """(C,) number of first rows of each chunk that are held out of training."""
    seed: int
    vocabulary: str  # fingerprint of the tokenizer


def chunk_path(output_dir: Path, number: int) -> Path:
    """Return the path of a chunk of texts before encoding."""
    return output_dir / WORK / f"texts-{number:06d}.arrow"


def read_chunks(
    pairs: Iterable[Pair],
    output_dir: Path,
    cleaning: Cleaning,
    seed: int,
    team: int | str,
    on_progress: OnProgress,
) -> int:
    """Write the retained pairs in chunks with `workers`; return the number of chunks.

    Duplicates are retained here; `count_chunks` finds them.
    """
    numbers = 0
    with workers(team) as (pool, count):

        def jobs() -> Iterator[Callable[[], int]]:
            nonlocal numbers
            for number, part in enumerate(_parts(pairs)):
                numbers = number + 1
                yield partial(_clean_chunk, output_dir, number, part, cleaning, seed)

        done = 0
        for rows in spread(pool, jobs(), 2 * count):
            done += rows
            on_progress(done)
    return numbers


def _parts(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    part: list[Pair] = []
    characters = 0
    for pair in pairs:
        part.append(pair)
        characters += len(pair[0]) + len(pair[1])
        if len(part) == ROWS or characters > CHARACTERS:
            yield part
            part, characters = [], 0
    if part:
        yield part


def _clean_chunk(
    output_dir: Path, number: int, pairs: list[Pair], cleaning: Cleaning, seed: int
) -> int:
    """Write the retained pairs of a chunk, unless that is done; return their number."""
    path = chunk_path(output_dir, number)
    if not path.is_file():
        retained = cleaned(pairs, cleaning)
        order = pa.array(np.random.default_rng([seed, 0, number]).permutation(len(retained.hashes)))
        columns = {
            "source": pa.array(retained.sources, pa.large_string()),
            "target": pa.array(retained.targets, pa.large_string()),
            "hash": pa.array(retained.hashes, pa.uint64()),
        }
        notes = {"read": len(pairs), **retained.faults}
        shuffled = {name: column.take(order) for name, column in columns.items()}
        write_whole(path, [arrow_file(shuffled, {"counts": json.dumps(notes)})])
    return len(pairs)


def count_chunks(
    output_dir: Path, chunks: int, cleaning: Cleaning, hold_out: int
) -> tuple[list[int], list[int], Counter[str]]:
    """Write the retained rows of each chunk beside it, those that are held out first.

    Returns:
        Numbers of held-out and of other rows of each chunk, and what was dropped.
    """
    batches = [read_batch(chunk_path(output_dir, number)) for number in range(chunks)]
    counts = Counter[str]()
    for batch in batches:
        counts.update(json.loads(batch.schema.metadata[b"counts"]))
    hashes = [batch.column("hash").to_numpy() for batch in batches]
    retained: list[Ints] = [np.arange(len(batch)) for batch in batches]
    if cleaning.duplicates:
        retained = [*first_of_each(hashes)]
        if repeated := sum(map(len, hashes)) - sum(map(len, retained)):
            counts["duplicate pair"] = repeated
    out = shares([*map(len, retained)], hold_out)
    held_out_hashes = np.concatenate(
        [chunk_hashes[rows[:n]] for chunk_hashes, rows, n in zip(hashes, retained, out)] or [[]]
    )
    num_training = []
    for number, (chunk_hashes, rows, count) in enumerate(zip(hashes, retained, out, strict=True)):
        training_rows = rows[count:]
        if not cleaning.duplicates:
            training_rows = training_rows[~np.isin(chunk_hashes[training_rows], held_out_hashes)]
        if equal := len(rows) - count - len(training_rows):
            counts["equal to a held-out pair"] += equal
        num_training.append(len(training_rows))
        chosen = np.concatenate([rows[:count], training_rows]).astype(np.int32)
        write_whole(_rows_path(output_dir, number), chosen.tobytes())
    return out, num_training, counts


def _rows_path(output_dir: Path, number: int) -> Path:
    return chunk_path(output_dir, number).with_suffix(".rows")


def shares(sizes: list[int], total: int) -> list[int]:
    """Split a number over chunks in proportion to their sizes, preserving the sum."""
    size = max(1, sum(sizes))
    ends = [min(total, size) * end // size for end in np.cumsum([0, *sizes]).tolist()]
    return [end - start for start, end in pairwise(ends)]


def texts_of(output_dir: Path, number: int, start: int, stop: int) -> list[list[str]]:
    """Return sources and targets of a range of retained rows of a chunk."""
    rows = np.fromfile(_rows_path(output_dir, number), np.int32)[start:stop]
    batch = read_batch(chunk_path(output_dir, number))
    return [batch.column(side).take(pa.array(rows)).to_pylist() for side in SIDES]


def shard_name(number: int) -> str:
    """Return the file name of a shard."""
    return f"train-{number:05d}.arrow"


def make_shards(
    plan: Plan, team: int | str, on_progress: OnProgress
) -> tuple[list[ShardEntry], npt.NDArray[np.int32]]:
    """Build missing shards with `workers`.

    Returns:
        Manifest entries of the shards, and their histograms concatenated, (E, 3).
    """
    finished: dict[int, tuple[ShardEntry, npt.NDArray[np.int32]]] = {}
    with workers(team) as (pool, count):
        jobs = (partial(_make_shard, plan, number) for number in range(plan.shards))
        for number, entry, lengths in spread(pool, jobs, 2 * count):
            finished[number] = entry, lengths
            on_progress(len(finished))
    entries, tables = zip(*(finished[number] for number in range(plan.shards)), strict=True)
    return list(entries), np.concatenate(tables)


def _make_shard(plan: Plan, number: int) -> tuple[int, ShardEntry, npt.NDArray[np.int32]]:
    path = plan.output_dir / shard_name(number)
    try:
        return number, *describe_shard(path)
    except UserError:  # missing, or damaged
        write_whole(path, [_shard_content(plan, number)])
        return number, *describe_shard(path)


def _shard_content(plan: Plan, number: int) -> pa.Buffer:
    sides: list[list[str]] = [[], []]
    for chunk, held_out in enumerate(plan.held_out):
        rows = _rows_path(plan.output_dir, chunk).stat().st_size // 4 - held_out
        start, stop = (held_out + rows * n // plan.shards for n in (number, number + 1))
        for side, texts in zip(sides, texts_of(plan.output_dir, chunk, start, stop), strict=True):
            side += texts
    order = np.random.default_rng([plan.seed, 1, number]).permutation(len(sides[0])).tolist()
    tokenizer = _tokenizer(plan.output_dir, plan.vocabulary)
    sizes = (tokenizer.source_size, tokenizer.target_size)
    encoders = (tokenizer.encode_source, tokenizer.encode_target)
    lengths, ids = [], []
    for texts, size, encode in zip(sides, sizes, encoders, strict=True):
        kind = np.uint16 if size <= 1 << 16 else np.int32
        row_lengths, flat = [], []
        for first in range(0, len(order), _ENCODED):
            some = encode([texts[row] for row in order[first : first + _ENCODED]])
            row_lengths += list(map(len, some))
            flat.append(np.fromiter(chain.from_iterable(some), kind))
        lengths.append(np.array(row_lengths, np.int64))
        ids.append(np.concatenate(flat) if flat else np.zeros(0, kind))
    return ids_file(lengths, ids)


@lru_cache(maxsize=1)
def _tokenizer(output_dir: Path, fingerprint: str) -> Tokenizer:
    return Tokenizer.load(output_dir / "tokenizer")
