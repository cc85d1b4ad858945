"""A prepared corpus on disk: shards of ids, a vocabulary, and a manifest with digests."""

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
"""Files and folders of a prepared corpus besides its shards; `WORK` exists during preparation."""
AGAIN = "rerun the same seqattn prepare command"
"""Advice for a damaged corpus."""
SIDES = ("source", "target")
Ints = npt.NDArray[np.int64]


Natural = Annotated[int, Ge(0), Lt(1 << 40)]
FileName = Annotated[str, StringConstraints(pattern=r"^[\w-][\w.-]*$")]


class ShardEntry(BaseModel):
    """Manifest entry of a file of ids.

    `name`, `sha256` and `bytes` of the file; number of `pairs`; total `source_tokens` and
    `target_tokens`, end marks included; `lengths`: its number of rows in `LENGTHS`.
    """

    name: FileName
    sha256: str
    bytes: Natural
    pairs: Natural
    source_tokens: Natural
    target_tokens: Natural
    lengths: Natural


class SplitEntry(BaseModel):
    """Manifest entry of a file of texts, for validation or test."""

    name: FileName
    sha256: str
    rows: Natural


class Manifest(BaseModel):
    """Contents of a prepared corpus.

    `settings` and `contents` (sizes and digests of input files) are those of `Provenance`; `counts`
    are numbers of pairs read and left out, by reason.
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

    def write(self, directory: Path) -> None:
        """Write the manifest, which completes a prepared corpus."""
        write_whole(directory / MANIFEST, self.model_dump_json(indent=1).encode())

    @property
    def pairs(self) -> int:
        """Number of training pairs."""
        return sum(shard.pairs for shard in self.train)


def read_manifest(root: Path) -> Manifest:
    """Read the manifest of a prepared corpus.

    Raises:
        UserError: if the directory holds none, or an unfinished one.
    """
    path = root / MANIFEST
    if not is_file(path):
        reason = f"{MANIFEST} is missing; create it with seqattn prepare output={root}"
        if (root / WORK).is_dir():
            reason = f"preparation is unfinished; {AGAIN}"
        raise UserError(f"data.root={root} is not a prepared corpus: {reason}")
    try:
        return Manifest.model_validate_json(read_bytes(path))
    except ValidationError as error:
        raise UserError(f"cannot read {path}; rerun seqattn prepare") from error


def is_whole(path: Path, sha256: str) -> bool:
    """Return True if a file exists and has this digest."""
    return is_file(path) and digest_of(path) == sha256


def check_whole(path: Path, sha256: str) -> None:
    """Raise UserError for a file that is missing or damaged."""
    if not is_whole(path, sha256):
        raise UserError(f"{path} is missing or damaged; {AGAIN}")


class Shard:
    """Rows of ids, read through numpy views of the memory-mapped file that `ids_file` wrote.

    Raises:
        UserError: if it is missing, or not such a file.
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
        """Return (N,) lengths of the sources and (N,) of the targets, end marks included."""
        return [np.diff(offsets) for offsets in self._offsets]

    def is_below(self, sizes: Sequence[int]) -> bool:
        """Return True if all ids are within vocabularies of these sizes, one for each side."""
        pairs = zip(self._values, sizes, strict=True)
        return all(ids.min(initial=0) >= 0 and ids.max(initial=0) < size for ids, size in pairs)

    def rows(self, side: int, rows: Ints) -> list[Any]:
        """Return the ids of some rows. Args: side: 0 for the source, 1 for the target."""
        offsets, values = self._offsets[side], self._values[side]
        ends = zip(offsets[rows].tolist(), offsets[rows + 1].tolist(), strict=True)
        return [values[start:end] for start, end in ends]


open_shard = lru_cache(maxsize=256)(Shard)
"""Open a shard, cached."""


def _holds_ids(table: pa.RecordBatch) -> bool:
    """Return True if both sides are lists of integers without nulls."""
    if not set(SIDES) <= set(table.schema.names):
        return False
    columns = [table.column(side) for side in SIDES]
    if not all(pa.types.is_list(column.type) for column in columns):
        return False
    try:
        table.validate(full=True)
    except pa.ArrowInvalid:
        return False
    kinds = [column.type.value_type for column in columns]
    absent = sum(column.null_count + column.values.null_count for column in columns)
    return all(map(pa.types.is_integer, kinds)) and absent == 0


def read_batch(path: Path) -> pa.RecordBatch:
    """Return the only batch of an Arrow file, memory-mapped.

    Raises:
        UserError: if it is missing or damaged.
    """
    try:
        with file_faults("read", path), pa.memory_map(str(path)) as file:
            return pa.ipc.open_file(file).get_batch(0)
    except (pa.ArrowException, IndexError, ValueError) as error:
        raise UserError(f"{path} is damaged; {AGAIN}") from error


def arrow_file(columns: dict[str, pa.Array], notes: dict[str, str] | None = None) -> pa.Buffer:
    """Return an Arrow file with one batch. Args: notes: metadata of its schema."""
    batch = pa.record_batch(columns)
    batch = batch.replace_schema_metadata(notes or {})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def ids_file(lengths: list[Ints], ids: list[npt.NDArray[Any]]) -> pa.Buffer:
    """Return a shard: lists of the ids of sources and targets.

    Args:
        lengths: (N,) lengths of the sources, and (N,) of the targets.
        ids: concatenated ids of all sources, and of all targets.
    """
    columns = {}
    for side, row_lengths, flat in zip(SIDES, lengths, ids, strict=True):
        offsets = np.concatenate([[0], np.cumsum(row_lengths)]).astype(np.int32)
        columns[side] = pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat))
    return arrow_file(columns)


def histogram(lengths: list[npt.NDArray[Any]]) -> npt.NDArray[np.int32]:
    """Return (E, 3) source length, target length and number of rows, for each pair of lengths."""
    source, target = (row_lengths.astype(np.int64) for row_lengths in lengths)
    width = int(target.max(initial=0)) + 1
    pairs, rows = np.unique(source * width + target, return_counts=True)
    return np.stack([pairs // width, pairs % width, rows], axis=1).astype(np.int32)


def describe_shard(path: Path) -> tuple[ShardEntry, npt.NDArray[np.int32]]:
    """Return the manifest entry of a shard, and its histogram.

    Raises:
        UserError: if it is missing or damaged.
    """
    lengths = Shard(path).lengths()
    table = histogram(lengths)
    source, target = (int(row_lengths.sum()) for row_lengths in lengths)
    entry = ShardEntry(
        name=path.name, sha256=digest_of(path), bytes=path.stat().st_size, pairs=len(lengths[0]),
        source_tokens=source, target_tokens=target, lengths=len(table),
    )  # fmt: skip
    return entry, table


def write_lengths(directory: Path, table: npt.NDArray[np.int32]) -> str:
    """Write the histograms of all shards; return the file's SHA-256."""
    sink = io.BytesIO()
    np.save(sink, table)
    write_whole(directory / LENGTHS, sink.getvalue())
    return digest_of(directory / LENGTHS)


def read_lengths(directory: Path, manifest: Manifest) -> npt.NDArray[np.int32]:
    """Read the concatenated histograms of all shards, (E, 3) as from `histogram`.

    Raises:
        UserError: if the file is damaged, or does not match the manifest.
    """
    path = directory / LENGTHS
    check_whole(path, manifest.lengths_sha256)
    try:
        table = np.load(path, mmap_mode="r")
    except (ValueError, EOFError) as error:
        raise UserError(f"{path} is damaged; {AGAIN}") from error
    sizes = [entry.lengths for entry in manifest.train]
    if table.dtype != np.int32 or table.shape != (sum(sizes), 3) or table.min(initial=0) < 0:
        raise UserError(f"{path} does not match {MANIFEST}; {AGAIN}")
    ends = np.cumsum([0, *sizes])
    totals = np.cumsum([0, *table[:, 2].tolist()])[ends]
    for entry, rows in zip(manifest.train, np.diff(totals).tolist(), strict=True):
        if entry.pairs != rows:
            raise UserError(
                f"{directory / MANIFEST} lists {entry.pairs:,} pairs for {entry.name}, "
                f"but {LENGTHS} has {rows:,}; {AGAIN}"
            )
    return table


def write_split(directory: Path, split: str, texts: pa.Table) -> SplitEntry:
    """Write texts for validation or test, in the format of `datasets`."""
    path, texts = directory / f"{split}.arrow", texts.replace_schema_metadata(None)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, texts.schema) as writer:
        writer.write_table(texts)
    write_whole(path, [sink.getvalue()])
    return SplitEntry(name=path.name, sha256=digest_of(path), rows=len(texts))


def damaged_files(directory: Path, manifest: Manifest) -> list[Path]:
    """Return the files of a prepared corpus that are missing or damaged."""
    digests = {entry.name: entry.sha256 for entry in manifest.train}
    digests |= {entry.name: entry.sha256 for entry in manifest.splits.values()}
    digests[LENGTHS] = manifest.lengths_sha256
    files = {directory / name: sha256 for name, sha256 in digests.items()}
    return [path for path, sha256 in files.items() if not is_whole(path, sha256)]
