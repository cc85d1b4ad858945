"""Text files, checked before anything is made of them."""

from __future__ import annotations

import codecs
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seqattn.errors import UserError


@dataclass(frozen=True)
class TextFile:
    """A UTF-8 text file that has been read through once.

    Attributes:
        path: where it is.
        lines: how many lines it has; a last line without its line break counts.
        digest: the content's SHA-256 in hexadecimal.
    """

    path: Path
    lines: int
    digest: str


def scan_text(path: Path) -> TextFile:
    """Reads a file through once.

    Raises:
        UserError: the file is not there, or is not UTF-8 (with the line that is not).
    """
    if not path.is_file():
        raise UserError(f"{path} must be a text file, it does not exist")
    digest = hashlib.sha256()
    lines = 0
    with path.open("rb") as file:
        for lines, line in enumerate(file, 1):
            digest.update(line)
            try:
                line.decode()
            except UnicodeDecodeError as error:
                raise UserError(
                    f"{path} must be UTF-8 text, line {lines} is not "
                    f"(byte 0x{line[error.start]:02x} at column {error.start + 1})"
                ) from error
    return TextFile(path, lines, digest.hexdigest())


def read_lines(path: Path) -> Iterator[str]:
    r"""Gives a file's lines as `wc -l` counts them.

    Only "\n" and "\r\n" end a line. Python's `splitlines`, its universal newlines and the text
    loader of `datasets` also break at other characters, which sentences do contain, and then the
    two sides no longer match.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file):
            if number == 0:
                line = line.removeprefix(codecs.BOM_UTF8)
            yield line.removesuffix(b"\n").removesuffix(b"\r").decode()


def files_in(directory: Path) -> str:
    """Names a directory's files for an error message, at most a dozen."""
    names = sorted(path.name for path in directory.iterdir() if path.is_file())
    shown = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    return shown or "no file"


def json_fault(path: Path) -> str | None:
    """Says in which line a file stops being JSON, and what should stand there.

    Args:
        path: a UTF-8 file; of ".jsonl" every line must be an object, of ".json" the whole a list
            of objects.

    Returns:
        The fault, such as "line 3 must be a JSON object: Expecting value at column 9"; None
        where there is none of this kind.
    """
    if path.suffix != ".jsonl":
        return _whole_fault(path)
    for number, line in enumerate(read_lines(path), 1):
        try:
            row = json.loads(line) if line.strip() else {}
        except json.JSONDecodeError as error:
            return f"line {number} must be a JSON object: {error.msg} at column {error.colno}"
        if not isinstance(row, dict):
            return f"line {number} must be a JSON object, it is a {type(row).__name__}"
    return None


def _whole_fault(path: Path) -> str | None:
    try:
        rows = json.loads(path.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        return f"line {error.lineno} is not JSON: {error.msg} at column {error.colno}"
    if not isinstance(rows, list):
        return f"it must be a list of objects, it is a {type(rows).__name__}"
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            return f"row {number} must be a JSON object, it is a {type(row).__name__}"
    return None
