"""A prepared corpus on disk: shards of ids, a vocabulary, and a manifest that vouches for them."""

import io
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from annotated_types import Ge, Lt
from pydantic import BaseModel, StringConstraints, ValidationError

from seqattn.data.vocabulary import TokenizerConfig
from seqattn.errors import UserError
from seqattn.inputs import read_bytes
from seqattn.storage import digest_of, file_faults, is_file, write_whole

FORMAT: Literal["seqattn shards 1"] = "seqattn shards 1"
MANIFEST, LENGTHS, TOKENIZER, WORK = "manifest.json", "lengths.npy", "tokenizer", "unfinished"
"""The files and folders of a prepared corpus beside its shards; `WORK` while it is being made."""
AGAIN = "give the same seqattn prepare command again"
"""What mends a prepared corpus."""
SIDES = ("source", "target")
Ints = npt.NDArray[np.int64]


Natural = Annotated[int, Ge(0), Lt(1 << 40)]
FileName = Annotated[str, StringConstraints(pattern=r"^[\w-][\w.-]*$")]


class ShardEntry(BaseModel):
    """What the manifest says of a file of ids.

    `name`, `sha256` and `bytes` of the file; `pairs` in it; `source_tokens` and `target_tokens` of
    all of them, end marks counted; `lengths`: its rows in `LENGTHS`.
    """

    name: FileName
    sha256: str
    bytes: Natural
    pairs: Natural
    source_tokens: Natural
    target_tokens: Natural
    lengths: Natural


class SplitEntry(BaseModel):
    """What the manifest says of a file of texts, to validate or test on."""

    name: FileName
    sha256: str
    rows: Natural


class Manifest(BaseModel):
    """What a prepared corpus holds.

    `settings` and `contents` (sizes and digests of files) are what it was made with and from, as
    in `MadeFrom`, `counts` the pairs that were read and left out, by reason.
    """

    format: Literal["seqattn shards 1"]
    settings: dict[str, Any]
    contents: dict[str, list[str]] = {}
    tokenizer: TokenizerConfig
    fingerprint: str
    counts: dict[str, int]
    lengths_sha256: str
    train: list[ShardEntry]
    splits: dict[str, SplitEntry]

    def write(self, home: Path) -> None:
        """Writes it, which makes a directory a prepared corpus."""
        write_whole(home / MANIFEST, self.model_dump_json(indent=1).encode())

    @property
    def pairs(self) -> int:
        """Pairs to train on."""
        return sum(shard.pairs for shard in self.train)


def read_manifest(root: Path) -> Manifest:
    """The manifest of a prepared corpus.

    Raises:
        UserError: the directory holds none, or an unfinished one.
    """
    path = root / MANIFEST
    if not is_file(path):
        reason = f"{MANIFEST} is not there; make it by seqattn prepare output={root}"
        if (root / WORK).is_dir():
            reason = f"its preparation is unfinished; {AGAIN}"
        raise UserError(f"data.root={root} is no prepared corpus: {reason}")
    try:
        return Manifest.model_validate_json(read_bytes(path))
    except ValidationError as error:
        raise UserError(f"{path} cannot be read; give seqattn prepare again") from error


def is_whole(path: Path, sha256: str) -> bool:
    """Whether a file is there, as it was written."""
    return is_file(path) and digest_of(path) == sha256


def check_whole(path: Path, sha256: str) -> None:
    """Refuses a file that is not there, or not as it was written."""
    if not is_whole(path, sha256):
        raise UserError(f"{path} is missing or damaged; {AGAIN}")


class Shard:
    """Rows of ids, read through numpy views of the memory-mapped file that `ids_file` wrote.

    Raises:
        UserError: it is not there, or is no such file.
    """

    def __init__(self, path: Path) -> None:
        table = read_batch(path)
        if not _holds_ids(table):
            raise UserError(f"{path} is damaged; {AGAIN}")
        lists = [table.column(side) for side in SIDES]
        self._offsets = [column.offsets.to_numpy() for column in lists]
        self._values = [column.values.to_numpy(zero_copy_only=True) for column in lists]

    def __len__(self) -> int:
        return len(self._offsets[0]) - 1

    def lengths(self) -> list[npt.NDArray[np.int32]]:
        """(N,) tokens of each source and (N,) of each target, end marks counted."""
        return [np.diff(offsets) for offsets in self._offsets]

    def is_below(self, sizes: Sequence[int]) -> bool:
        """True if ids are those of vocabularies of the sizes of both sides."""
        pairs = zip(self._values, sizes, strict=True)
        return all(ids.min(initial=0) >= 0 and ids.max(initial=0) < size for ids, size in pairs)

    def rows(self, side: int, rows: Ints) -> list[Any]:
        """The ids of some rows. Args: side: 0 for the source, 1 for the target."""
        offsets, values = self._offsets[side], self._values[side]
        ends = zip(offsets[rows].tolist(), offsets[rows + 1].tolist(), strict=True)
        return [values[start:end] for start, end in ends]


open_shard = lru_cache(maxsize=256)(Shard)
"""A shard that stays open."""


def _holds_ids(table: pa.RecordBatch) -> bool:
    """True if both sides are lists of whole numbers, and nothing is absent."""
    if not set(SIDES) <= set(table.schema.names):
        return False
    columns = [table.column(side) for side in SIDES]
    if not all(pa.types.is_list(one.type) for one in columns):
        return False
    try:
        table.validate(full=True)
    except pa.ArrowInvalid:
        return False
    kinds = [one.type.value_type for one in columns]
    absent = sum(one.null_count + one.values.null_count for one in columns)
    return all(map(pa.types.is_integer, kinds)) and absent == 0


def read_batch(path: Path) -> pa.RecordBatch:
    """The one batch of an Arrow file, memory-mapped.

    Raises:
        UserError: it is not there or damaged.
    """
    try:
        with file_faults("read", path), pa.memory_map(str(path)) as file:
            return pa.ipc.open_file(file).get_batch(0)
    except (pa.ArrowException, IndexError, ValueError) as error:
        raise UserError(f"{path} is damaged; {AGAIN}") from error


def arrow_file(columns: dict[str, pa.Array], notes: dict[str, str] | None = None) -> pa.Buffer:
    """An Arrow file with one batch. Args: notes: kept in its schema."""
    batch = pa.record_batch(columns)
    batch = batch.replace_schema_metadata(notes or {})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def ids_file(lengths: list[Ints], ids: list[npt.NDArray[Any]]) -> pa.Buffer:
    """A shard: lists of the sources' and the targets' ids.

    Args:
        lengths: (N,) of each source, and (N,) of each target.
        ids: of all sources one after the other, and of all targets.
    """
    columns = {}
    for side, each, flat in zip(SIDES, lengths, ids, strict=True):
        offsets = np.concatenate([[0], np.cumsum(each)]).astype(np.int32)
        columns[side] = pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat))
    return arrow_file(columns)


def histogram(lengths: list[npt.NDArray[Any]]) -> npt.NDArray[np.int32]:
    """(E, 3) source length, target length, rows that have both; each pair of lengths once."""
    source, target = (each.astype(np.int64) for each in lengths)
    width = int(target.max(initial=0)) + 1
    pairs, rows = np.unique(source * width + target, return_counts=True)
    return np.stack([pairs // width, pairs % width, rows], axis=1).astype(np.int32)


def describe_shard(path: Path) -> tuple[ShardEntry, npt.NDArray[np.int32]]:
    """What the manifest says of a shard, and its histogram.

    Raises:
        UserError: it is not there or damaged.
    """
    lengths = Shard(path).lengths()
    table = histogram(lengths)
    source, target = (int(each.sum()) for each in lengths)
    entry = ShardEntry(
        name=path.name, sha256=digest_of(path), bytes=path.stat().st_size, pairs=len(lengths[0]),
        source_tokens=source, target_tokens=target, lengths=len(table),
    )  # fmt: skip
    return entry, table


def write_lengths(home: Path, table: npt.NDArray[np.int32]) -> str:
    """Writes the histograms of all shards; gives the file's SHA-256."""
    sink = io.BytesIO()
    np.save(sink, table)
    write_whole(home / LENGTHS, sink.getvalue())
    return digest_of(home / LENGTHS)


def read_lengths(home: Path, manifest: Manifest) -> npt.NDArray[np.int32]:
    """The histograms of all shards, (E, 3) as `histogram` gives them, one after the other.

    Raises:
        UserError: the file is damaged, or the manifest counts other rows.
    """
    path = home / LENGTHS
    check_whole(path, manifest.lengths_sha256)
    try:
        table = np.load(path, mmap_mode="r")
    except (ValueError, EOFError) as error:
        raise UserError(f"{path} is damaged; {AGAIN}") from error
    sizes = [entry.lengths for entry in manifest.train]
    if table.dtype != np.int32 or table.shape != (sum(sizes), 3) or table.min(initial=0) < 0:
        raise UserError(f"{path} is not what {MANIFEST} says; {AGAIN}")
    ends = np.cumsum([0, *sizes])
    totals = np.cumsum([0, *table[:, 2].tolist()])[ends]
    for entry, rows in zip(manifest.train, np.diff(totals).tolist(), strict=True):
        if entry.pairs != rows:
            raise UserError(
                f"{home / MANIFEST} says that {entry.name} has {entry.pairs:,} pairs, "
                f"{LENGTHS} has {rows:,}; {AGAIN}"
            )
    return table


def write_split(home: Path, split: str, texts: pa.Table) -> SplitEntry:
    """Writes texts to validate or test on, as `datasets` reads them."""
    path, texts = home / f"{split}.arrow", texts.replace_schema_metadata(None)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, texts.schema) as writer:
        writer.write_table(texts)
    write_whole(path, [sink.getvalue()])
    return SplitEntry(name=path.name, sha256=digest_of(path), rows=len(texts))


def damaged_files(home: Path, manifest: Manifest) -> list[Path]:
    """The files of a prepared corpus that are not there, or not as they were written."""
    digests = {entry.name: entry.sha256 for entry in manifest.train}
    digests |= {entry.name: entry.sha256 for entry in manifest.splits.values()}
    digests[LENGTHS] = manifest.lengths_sha256
    return [home / name for name, sha256 in digests.items() if not is_whole(home / name, sha256)]
