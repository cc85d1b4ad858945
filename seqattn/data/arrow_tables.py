"""Tables of `datasets`: cached by content, fetched from the hub, without progress bars or logs."""

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from datasets.exceptions import DatasetGenerationError, DatasetsError
from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

from seqattn.errors import UserError
from seqattn.storage import file_faults, is_file, temporary_directory

Ints = npt.NDArray[np.int64]
TEXT, NUMBER = pa.string(), pa.int32()
TEXTS, NUMBERS = pa.list_(TEXT), pa.list_(NUMBER)


def table_of(
    rows: Iterable[dict[str, Any]], columns: dict[str, Any], content: str, cache_dir: Path | None
) -> datasets.Dataset:
    """Return a memory-mapped table, cached by `content`.

    Args:
        rows: determined by `content`; not read if the table is cached.
        cache_dir: created if absent; None for the cache of `datasets`.
    """
    folder = Path(cache_dir or datasets.config.HF_DATASETS_CACHE)
    path = folder / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.arrow"
    with file_faults("create", folder):
        folder.mkdir(parents=True, exist_ok=True)
    if not is_file(path):
        some, schema = iter(rows), pa.schema(columns)
        with file_faults("write", path), temporary_directory(folder) as temporary:
            complete = temporary / path.name
            with complete.open("wb") as file, pa.ipc.new_stream(file, schema) as writer:
                while batch := list(islice(some, 1000)):
                    writer.write_batch(pa.RecordBatch.from_pylist(batch, schema))
            complete.replace(path)
    return datasets.Dataset.from_file(str(path))


@contextmanager
def quiet_datasets(cache_dir: Path | None = None) -> Iterator[None]:
    """Silence `datasets` and the hub's client inside the block.

    Raises:
        UserError: if a file cannot be written.
    """
    bars = datasets.are_progress_bars_disabled()
    loggers = map(logging.getLogger, ("datasets", "huggingface_hub"))
    levels = {logger: logger.level for logger in loggers}
    datasets.disable_progress_bars()
    for logger in levels:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    except (OSError, DatasetGenerationError) as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, OSError):
            cause = cause.__cause__ or cause.__context__
        if cause is None:
            raise
        where = cause.filename or cache_dir or datasets.config.HF_DATASETS_CACHE
        reason = cause.strerror or str(cause).splitlines()[0]
        raise UserError(f"cannot use the cache {where}: {reason}") from error
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)
        if not bars:
            datasets.enable_progress_bars()


def hub_table(
    dataset: str, name: str | None, split: str, cache_dir: Path | None
) -> datasets.Dataset:
    """Load a split from the hub. Args: name: its configuration. split: its name on the hub.

    Raises:
        UserError: if it cannot be loaded.
    """
    cache = None if cache_dir is None else str(cache_dir)
    with quiet_datasets(cache_dir), _hub_faults(dataset, split):
        return datasets.load_dataset(dataset, name, split=split, cache_dir=cache)


def hub_stream(dataset: str, name: str | None, split: str) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of such a split, without a copy on disk. Args, Raises: as `hub_table`."""
    with quiet_datasets(), _hub_faults(dataset, split):
        yield from datasets.load_dataset(dataset, name, split=split, streaming=True)


@contextmanager
def _hub_faults(dataset: str, split: str) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    # names, configurations, splits, the network and the server all fail with different types
    except (OSError, ValueError, RuntimeError, LookupError, DatasetsError, HTTPError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(f"cannot load {dataset} ({split}) from the hub: {reason}") from error


def content_digest(table: datasets.Dataset) -> str:
    """Return the SHA-256 of a table's rows, independent of their file."""
    digest = hashlib.sha256()
    for batch in table.iter(batch_size=10_000):
        for side in sorted(batch):
            texts = [str(value) for value in batch[side]]
            digest.update(f"{side} {[*map(len, texts)]}".encode())  # where each text ends
            digest.update("".join(texts).encode())
    return digest.hexdigest()


class Lists:
    """A column of lists of int32, read through numpy views of the memory-mapped file.

    Attributes:
        lengths: (N,) lengths of the lists.
    """

    def __init__(self, table: datasets.Dataset, column: str) -> None:
        chunks = table.data.column(column).chunks
        offsets = [chunk.offsets.to_numpy().astype(np.int64) for chunk in chunks]
        self._values = [chunk.values.to_numpy(zero_copy_only=True) for chunk in chunks]
        self._chunk = np.repeat(np.arange(len(chunks)), list(map(len, chunks)))
        self._start = np.concatenate([part[:-1] for part in offsets])
        self.lengths: Ints = np.concatenate([np.diff(part) for part in offsets])

    def fetch(self, rows: Ints) -> list[npt.NDArray[np.int32]]:
        """Return the lists of some rows."""
        starts, ends = self._start[rows], self._start[rows] + self.lengths[rows]
        columns = (part.tolist() for part in (self._chunk[rows], starts, ends))
        return [self._values[c][start:end] for c, start, end in zip(*columns, strict=True)]
