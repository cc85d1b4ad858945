"""Table files, read by `datasets`: complete into its cache, or streamed."""

import csv
import glob
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from seqattn.data.arrow_tables import quiet_datasets
from seqattn.data.text_files import json_fault, scan_text
from seqattn.errors import UserError
from seqattn.inputs import LARGEST, check_there, limited_lines, opened, parse_rows, read_bytes
from seqattn.screen import say
from seqattn.storage import file_faults, kind_of

# Arguments of `load_dataset` for each suffix. Words such as "null" or "NA" are text here, and so
# are quotation marks in tab-separated text.
READERS: dict[str, tuple[str, dict[str, Any]]] = {
    ".jsonl": ("json", {}),
    ".json": ("json", {}),
    ".csv": ("csv", {"keep_default_na": False}),
    ".tsv": ("csv", {"keep_default_na": False, "sep": "\t", "quoting": csv.QUOTE_NONE}),
    ".parquet": ("parquet", {}),
    ".arrow": ("arrow", {}),
}
BINARY = (".parquet", ".arrow")
"""Formats that are not text, and not compressed by ".gz"."""


_ESCAPED = re.compile(rb'(^|[,;\t])"[^"]*\\"[^",;\t\r\n]')
"""A quotation mark that a backslash, and not a second mark, escapes in a quoted field."""
_NO_ROWS = ("corresponds to no data", "BatchSize must be greater than 0")
"""Messages of `datasets` for a JSON or parquet file without rows."""


def read_file(path: Path, cache_dir: Path | None) -> datasets.Dataset:
    """Return the rows of a file, memory-mapped.

    Raises:
        UserError: if it cannot be read, or has none.
    """
    kind = READERS[kind_of(path)][0]
    if kind_of(path) in BINARY:
        check_there(path, f"a valid {kind} file")
    elif scan_text(path)[0] == 0:
        raise UserError(f"{path} is empty")
    cache = None if cache_dir is None else str(cache_dir)
    with quiet_datasets(cache_dir), _explained_errors(path, kind):
        if views := _views(path):
            rows = views.read()
            return datasets.Dataset(pa.Table.from_pylist(rows.to_pylist(), _plain(rows.schema)))
        table = datasets.load_dataset(
            kind,
            data_files={"train": _itself(path)},
            split="train",
            cache_dir=cache,
            **_options(path),
        )
    schema = table.features.arrow_schema
    plain = _plain(schema)
    if kind != "json" or plain == schema.remove_metadata():
        return table
    return datasets.Dataset(pa.Table.from_pylist(list(_json_rows(path)), plain))


def stream_file(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a file; bytes that are not UTF-8 become U+FFFD.

    Raises:
        UserError: if it cannot be read.
    """
    kind = READERS[kind_of(path)][0]
    check_there(path, f"a valid {kind} file")
    if kind_of(path) not in BINARY:
        _check_lines(path)
    errors = {} if kind_of(path) in BINARY else {"encoding_errors": "replace"}
    with quiet_datasets(), file_faults("read", path), _explained_errors(path, kind):
        if views := _views(path):
            yield from (row for part in views.iter_batches() for row in part.to_pylist())
            return
        rows = datasets.load_dataset(
            kind, data_files={"train": _itself(path)}, split="train", streaming=True,
            **_options(path), **errors,
        )  # fmt: skip
        for number, row in enumerate(rows):
            if kind == "json" and _timed(row):
                columns = dict.fromkeys(row)
                yield from ({**columns, **row} for row in islice(_json_rows(path), number, None))
                return
            yield row


def saved_files(path: Path, split: str) -> list[Path]:
    """Return the tables of a directory written by `save_to_disk`; a file is itself.

    Args:
        split: name of the split in a directory of several.

    Raises:
        UserError: if it is another directory, or has no such split.
    """
    with file_faults("read", path):
        if not path.is_dir():
            return [path]
        path = path / split if (path / "dataset_dict.json").is_file() else path
        tables = sorted(file for file in path.glob("*.arrow") if not file.name.startswith("cache-"))
    if not tables:
        raise UserError(f"{path} is not a directory written by save_to_disk: it has no .arrow file")
    return tables


def _views(path: Path) -> pq.ParquetFile | None:
    """Return a parquet file that has views of lists, which `datasets` cannot read; else None."""
    file = pq.ParquetFile(path) if kind_of(path) == ".parquet" else None
    return file if file and "list_view<" in str(file.schema_arrow) else None


def _plain(schema: pa.Schema) -> pa.Schema:
    """Return a schema without metadata, dates and views; see `_untimed`."""
    return pa.schema([(field.name, _untimed(field.type)) for field in schema])


def _untimed(kind: pa.DataType) -> pa.DataType:
    """Replace dates in a type by text, since the JSON reader parses texts that look like dates."""
    if pa.types.is_temporal(kind):
        return pa.string()
    if re.match("(large_)?list(_view)?<", str(kind)):
        return pa.list_(_untimed(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _untimed(field.type)) for field in kind])
    return kind


def _timed(value: Any) -> bool:
    """Return True if a date is among the values."""
    if isinstance(value, Mapping | list):
        return any(map(_timed, value.values() if isinstance(value, Mapping) else value))
    return isinstance(value, datetime)


def _json_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a valid file, with every text unchanged."""
    with opened(path) as file:
        if kind_of(path) == ".json":
            yield from parse_rows(file.read().decode("utf-8-sig", "replace"))
            return
        for number, line in enumerate(file):
            text = line.decode("utf-8" if number else "utf-8-sig", "replace")
            if text.strip():
                yield json.loads(text)


def _check_lines(path: Path) -> None:
    """Raise UserError for a file without lines, or with a line too long for memory."""
    if kind_of(path) == ".json":
        read_bytes(path)
    with opened(path) as file:
        if sum(1 for _ in limited_lines(file, path, LARGEST)) == 0:
            raise UserError(f"{path} is empty")


def _itself(path: Path) -> str:
    """Return a pattern that matches only this file, since `datasets` treats names as patterns."""
    return glob.escape(str(path))


def _options(path: Path) -> dict[str, Any]:
    """Return the arguments of `load_dataset` for a file; columns of CSV and TSV are all text."""
    kind, options = READERS[kind_of(path)]
    if kind != "csv":
        return options
    options = {**options, **_dialect(path)}
    rows = pd.read_csv(path, nrows=1, encoding_errors="replace", **options)
    if len(rows) and not isinstance(rows.index, pd.RangeIndex):
        # the first field would become an index, and the others would get their neighbors' names
        raise UserError(f"{path} must name every column in its header, but rows have more fields")
    names = [name.strip() for name in rows.columns]
    names = names if len({*names}) == len(names) else list(rows.columns)
    texts = datasets.Features({name: datasets.Value("string") for name in names})
    return {**options, "names": names, "header": 0, "features": texts}


def _dialect(path: Path) -> dict[str, Any]:
    """Return how a CSV or TSV file differs from the usual form, as spreadsheets write it."""
    with opened(path) as file:
        lines = [file.readline(LARGEST) for _ in range(2)]
        escapes = any(map(_ESCAPED.search, chain(lines, file)))
    head, second = (line.decode("utf-8-sig", "replace") for line in lines)
    options: dict[str, Any] = {}
    if b"\r" not in lines[0]:  # else readers would also break lines at a CR within a text
        options["lineterminator"] = "\n"
    if kind_of(path) == ".tsv":
        cells = head.strip("\r\n").split("\t")
        quoted = all(len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in cells)
        if not quoted:
            return options
        options["quoting"] = csv.QUOTE_MINIMAL
    if escapes:
        say(f"{path} escapes quotation marks by backslashes; other single ones are left out")
        options["escapechar"] = "\\"
    if kind_of(path) == ".tsv":
        return options
    if separator := re.fullmatch(r'"?sep=(.)"?\s*', head):
        options |= {"sep": separator[1], "skiprows": 1}
        head = second
    elif "," not in head and (marks := [mark for mark in ";\t" if mark in head]):
        options["sep"] = marks[0]
    mark = options.get("sep", ",")
    return {**options, "skipinitialspace": True} if f"{mark} " in head else options


@contextmanager
def _explained_errors(path: Path, kind: str) -> Iterator[None]:
    """Raise UserError with one line on why `datasets` cannot read a file."""
    try:
        yield
    except UserError:
        raise
    except (datasets.exceptions.DatasetsError, ValueError, KeyError, RecursionError) as error:
        if isinstance(error.__cause__, OSError):
            raise
        if any(sign in f"{error} {error.__cause__}" for sign in _NO_ROWS):
            raise UserError(f"{path} has no rows") from error
        reason = json_fault(path) if kind == "json" else None
        reason = reason or str(error.__cause__ or error).strip().splitlines()[0]
        raise UserError(f"cannot read {path} as {kind_of(path)[1:]}: {reason}") from error


def row_texts(row: Mapping[str, Any], columns: Sequence[str], origin: str) -> list[str]:
    """Return the texts of a row in some columns, nulls as empty texts; nested ones by a dot.

    Raises:
        UserError: if a column is missing or not text.
    """
    texts = []
    for column in columns:
        value: Any = row
        for name in [column] if column in row else column.split("."):
            if not isinstance(value, Mapping) or name not in value:
                raise UserError(f"{origin} has no column {column!r}, only {', '.join(row)}")
            value = value[name]
        if not isinstance(value, str | None):
            kind = type(value).__name__
            raise UserError(f"column {column!r} of {origin} must contain text, got {kind}")
        texts.append(value or "")
    return texts


def names_in(row: Mapping[str, Any]) -> list[str]:
    """Return the names of a row's columns, nested ones with a dot."""
    return [
        f"{name}.{suffix}" if suffix else name
        for name, value in row.items()
        for suffix in (names_in(value) if isinstance(value, Mapping) else [""])
    ]
