"""Files of others, read within bounds: no device, no endless line, no more than memory holds."""

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
"""Bytes, unpacked, of a file that is read whole."""
MAX_DEPTH = 64
"""Lists and objects within each other that a JSON file may have."""
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Of plain YAML; libyaml's, where it is there, is several times as fast."""
_LARGEST_YAML, _MOST_YAML, _DEEPEST_YAML = 1 << 18, 20_000, 20
_TEXT_OR_PLAIN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[^][{}"]+')
_WHOLE_PAIR = re.compile(rb"\\\\|\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """A file's bytes, unpacked where its name ends in ".gz".

    Raises:
        UserError: it cannot be read, or is neither a file nor a pipe or terminal.
    """
    with file_faults("read", path):
        mode = path.stat().st_mode
        plain = stat.S_ISREG(mode) or stat.S_ISFIFO(mode)
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            if not (plain or os.isatty(file.fileno()) or path.samefile(os.devnull)):
                raise UserError(f"cannot read {path}: it is a device; give a file or a pipe")
            yield file  # type: ignore[misc]


def read_bytes(path: Path, largest: int = LARGEST) -> bytes:
    """The whole of a file.

    Raises:
        UserError: it cannot be read, or has more than `largest` bytes.
    """
    with opened(path) as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise UserError(f"{path} must have at most {largest:,} bytes to be read whole, it has more")
    return content


def limited_lines(
    file: IO[bytes], name: object, longest: int, cuts: bool = False
) -> Iterator[bytes]:
    """The lines of a file with their ends; no more than `longest` bytes of one are in memory.

    Args:
        name: of the file, for messages.
        cuts: whether U+FFFD stands for a longer line, up to `LARGEST`, in place of a refusal.

    Raises:
        UserError: naming a line that is too long.
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
    """The refusal of a line."""
    return UserError(
        f"{name} must have lines of at most {longest:,} bytes, line {number:,} has more; split or "
        "cut it"
    )


def check_there(path: Path, kind: str) -> None:
    """Refuses what is no regular file. Args: kind: what it must be, such as "a text file"."""
    if not is_file(path):
        why = "is no regular file" if path.exists() else "does not exist"
        raise UserError(f"{path} must be {kind}, it {why}")


def read_json(path: Path, kind: str, form: str = "JSON", largest: int = LARGEST) -> Any:
    """Reads a UTF-8 JSON file, with a byte order mark or without.

    Args:
        path: the file.
        kind: what it must be, such as "a file of predictions".
        form: what it must hold.
        largest: bytes.

    Raises:
        UserError: it is not there, is too large, or is not JSON (with the line).
    """
    check_there(path, kind)
    content = read_bytes(path, largest)
    check_json(content.splitlines(), path)
    try:
        return json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UserError(f"{path} must be UTF-8 text, byte {error.start:,} is not") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise UserError(f"{path} must be {form}, {where}: {error.msg}") from error
    except ValueError as error:  # a number of thousands of digits
        raise UserError(f"{path} must be {form}: {error}") from error


def read_yaml(path: Path) -> Any:
    """Reads a UTF-8 file of plain YAML; see `parse_yaml`.

    Raises:
        UserError: it is not there, is too large, or is no plain YAML.
    """
    check_there(path, "a YAML file")
    try:
        return parse_yaml(read_bytes(path, 4 * _LARGEST_YAML).decode())
    except UnicodeDecodeError as error:
        raise UserError(f"{path} must be UTF-8 text, byte {error.start:,} is not") from error
    except UserError as error:
        raise error if str(path) in str(error) else UserError(f"{path}: {error}") from error


def parse_yaml(text: str) -> Any:
    """YAML without tags, aliases and depth, so that reading it is quick and runs nothing.

    Raises:
        UserError: it is no such YAML.
    """
    if len(text) > _LARGEST_YAML:
        raise UserError(f"it cannot be read: it is longer than {_LARGEST_YAML:,} characters")
    depth = events = 0
    try:
        for event in yaml.parse(text, Loader=LOADER):
            events += 1
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent) or getattr(event, "tag", None) is not None:
                raise UserError("it cannot be read: it has a tag or an alias")
            if depth > _DEEPEST_YAML or events > _MOST_YAML:
                raise UserError("it cannot be read: it nests too deep or holds too much")
        return yaml.load(text, Loader=LOADER)
    except UserError:
        raise
    except (yaml.YAMLError, ValueError) as error:  # ValueError of a date, too
        reason = " ".join(str(error).split())[:80]
        raise UserError(f"it cannot be read: {reason!r}") from error


def csv_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file of numbers whose first line names its columns.

    Without a row that is cut off; none where there is no file. A field may be empty.

    Raises:
        UserError: it cannot be read, or a field is no number.
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
    """Refuses JSON on which readers crash: nested too deeply, or with half a surrogate pair.

    Args:
        lines: of the file.
        path: its name for the message.
        by_line: whether each line is a value of its own.

    Raises:
        UserError: naming the line.
    """
    depth = 0
    for number, line in enumerate(lines, 1):
        if _SURROGATE.search(line) and _SURROGATE.search(_WHOLE_PAIR.sub(b"", line)):
            raise UserError(f"{path} must be Unicode text, line {number} has half a surrogate pair")
        if by_line:
            depth = 0
            if line.count(b"[") + line.count(b"{") <= MAX_DEPTH:
                continue
        for bracket in _TEXT_OR_PLAIN.sub(b"", line):
            depth += 1 if bracket in b"[{" else -1
            if depth > MAX_DEPTH:
                raise UserError(
                    f"{path} must nest at most {MAX_DEPTH} lists and objects, line {number} nests "
                    "more"
                )
