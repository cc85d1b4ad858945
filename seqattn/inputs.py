"""Untrusted files, read within limits on kind, size, line length and nesting."""

import csv
import gzip
import io
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO, Any

import yaml

from seqattn.errors import UserError
from seqattn.storage import file_faults, is_file

LARGEST = 1 << 28
"""Maximum size in bytes, uncompressed, of a file that is read into memory."""
MAX_DEPTH = 64
"""Maximum nesting depth of lists and objects in a JSON file."""
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Loader of plain YAML; libyaml's, where available, is several times as fast."""
_LARGEST_YAML, _MOST_YAML, _DEEPEST_YAML = 1 << 18, 20_000, 20
_TEXT_OR_PLAIN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[^][{}"]+')
_WHOLE_PAIR = re.compile(rb"\\\\|\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w")
_VISIBLE = re.compile(r"[^ \t\r\n]")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading bytes, decompressed if its name ends in ".gz".

    Raises:
        UserError: if it cannot be read, or is neither a file nor a pipe or terminal.
    """
    with file_faults("read", path):
        mode = path.stat().st_mode
        plain = stat.S_ISREG(mode) or stat.S_ISFIFO(mode)
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            if not (plain or os.isatty(file.fileno()) or path.samefile(os.devnull)):
                raise UserError(f"cannot read {path}: it is a device; use a file or a pipe")
            yield file  # type: ignore[misc]


def read_bytes(path: Path, largest: int = LARGEST) -> bytes:
    """Return the content of a file.

    Raises:
        UserError: if it cannot be read, or has more than `largest` bytes.
    """
    with opened(path) as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise UserError(f"{path} is larger than the maximum of {largest:,} bytes")
    return content


def limited_lines(
    file: IO[bytes], name: object, longest: int, cuts: bool = False
) -> Iterator[bytes]:
    """Yield the lines of a file with their ends, holding at most `longest` bytes of one in memory.

    Args:
        name: name of the file, for messages.
        cuts: True to replace a longer line, up to `LARGEST`, by U+FFFD instead of raising an error.

    Raises:
        UserError: if a line is too long; the message gives its number.
    """
    for number in count(1):
        line = file.readline(longest + 1)
        if len(line) > longest:
            if not cuts:
                raise too_long(name, number, longest)
            size = len(line)
            while line and not line.endswith(b"\n"):
                line = file.readline(longest)
                size += len(line)
                if size > LARGEST:
                    raise too_long(name, number, LARGEST)
            line = "\ufffd\n".encode()
        if not line:
            return
        yield line


def too_long(name: object, number: int, longest: int) -> UserError:
    """Return the error for a line that is too long."""
    return UserError(
        f"{name}: line {number:,} is longer than {longest:,} bytes; split or truncate it"
    )


def check_there(path: Path, kind: str) -> None:
    """Raise UserError unless `path` is a regular file. Args: kind: such as "a text file"."""
    if not is_file(path):
        why = "is not a regular file" if path.exists() else "does not exist"
        raise UserError(f"{path} {why}; expected {kind}")


def read_json(
    path: Path, kind: str, form: str = "JSON", largest: int = LARGEST, rows: bool = False
) -> Any:
    """Read a UTF-8 JSON file, with or without a byte order mark.

    Args:
        path: the file.
        kind: what the file should be, such as "a file of predictions".
        form: the structure that its content should have.
        largest: maximum size in bytes.
        rows: True for a list of rows; see `parse_rows`.

    Raises:
        UserError: if it is missing, too large, or not JSON (the message names the line).
    """
    check_there(path, kind)
    content = read_bytes(path, largest)
    check_json(content.splitlines(), path)
    try:
        text = content.decode("utf-8-sig")
        return parse_rows(text) if rows else json.loads(text)
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not valid UTF-8 at byte {error.start:,}") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise UserError(f"{path} is not valid {form}, {where}: {error.msg}") from error
    except ValueError as error:  # an integer of thousands of digits
        raise UserError(f"{path} is not valid {form}: {error}") from error


def parse_rows(text: str) -> list[Any]:
    """Return the elements of a JSON list, or all values of a text, such as one per line."""
    rows: list[Any] = []
    decoder, start = json.JSONDecoder(), _VISIBLE.search(text)
    while start or not rows:
        value, end = decoder.raw_decode(text, start.start() if start else 0)
        rows.append(value)
        start = _VISIBLE.search(text, end)
    return list(rows[0]) if len(rows) == 1 and isinstance(rows[0], list) else rows


def read_yaml(path: Path) -> Any:
    """Read a UTF-8 file of plain YAML; see `parse_yaml`.

    Raises:
        UserError: if it is missing, too large, or not plain YAML.
    """
    check_there(path, "a YAML file")
    try:
        return parse_yaml(read_bytes(path, 4 * _LARGEST_YAML).decode())
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not valid UTF-8 at byte {error.start:,}") from error
    except UserError as error:
        raise error if str(path) in str(error) else UserError(f"{path}: {error}") from error


def parse_yaml(text: str) -> Any:
    """Parse YAML without tags, aliases or deep nesting, so that parsing is quick and runs no code.

    Raises:
        UserError: if the text is not such YAML.
    """
    if len(text) > _LARGEST_YAML:
        raise UserError(f"the YAML is longer than {_LARGEST_YAML:,} characters")
    depth = events = 0
    try:
        for event in yaml.parse(text, Loader=LOADER):
            events += 1
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent) or getattr(event, "tag", None) is not None:
                raise UserError("YAML tags and aliases are not supported")
            if depth > _DEEPEST_YAML or events > _MOST_YAML:
                raise UserError("the YAML is too deeply nested or too large")
        return yaml.load(text, Loader=LOADER)
    except UserError:
        raise
    except (yaml.YAMLError, ValueError) as error:  # invalid dates raise ValueError
        reason = " ".join(str(error).split())[:80]
        raise UserError(f"not valid YAML: {reason!r}") from error


def csv_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file of numbers with a header line.

    Omits a truncated last row; returns [] if the file is missing. Fields may be empty.

    Raises:
        UserError: if it cannot be read, or a field is not a number.
    """
    if not path.is_file():
        return []
    try:
        text = read_bytes(path).decode()
        rows = [*csv.DictReader(io.StringIO(text, newline=""))]
        rows = [row for row in rows if None not in row.values() and None not in row]
        _ = [float(value) for row in rows for value in row.values() if value]
    except (ValueError, csv.Error) as error:
        raise UserError(f"{path} must be a table of numbers: {error}") from error
    return rows


def check_json(lines: Iterable[bytes], path: Path, by_line: bool = False) -> None:
    """Raise UserError for JSON that crashes parsers: nested too deeply, or with a lone surrogate.

    Args:
        lines: lines of the file.
        path: its name for the message.
        by_line: True if each line is a separate value (JSON Lines).

    Raises:
        UserError: for such JSON, with the line number.
    """
    depth = 0
    for number, line in enumerate(lines, 1):
        if _SURROGATE.search(line) and _SURROGATE.search(_WHOLE_PAIR.sub(b"", line)):
            raise UserError(f"{path} is not valid Unicode: line {number} has an unpaired surrogate")
        if by_line:
            depth = 0
            if line.count(b"[") + line.count(b"{") <= MAX_DEPTH:
                continue
        for bracket in _TEXT_OR_PLAIN.sub(b"", line):
            depth += 1 if bracket in b"[{" else -1
            if depth > MAX_DEPTH:
                raise UserError(
                    f"{path} must nest lists and objects at most {MAX_DEPTH} deep, line {number} "
                    "is deeper"
                )
