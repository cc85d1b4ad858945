"""Text files, checked before anything is made of them."""

from __future__ import annotations

import codecs
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from seqattn.errors import UserError
from seqattn.storage import check_json, file_faults, is_file

LONGEST_LINE = 1_000_000
"""Bytes of a line; a document is far shorter, and sentencepiece would leave longer ones out."""


def scan_text(path: Path) -> tuple[int, str]:
    """Reads a UTF-8 file through once.

    Returns:
        How many lines it has, one without a line break at the end too, and its SHA-256.

    Raises:
        UserError: the file is not there, is not UTF-8, has a line beyond `LONGEST_LINE` (but for
            ".json", which may be one line), or is JSON that crashes its readers.
    """
    if not is_file(path):
        raise UserError(f"{path} must be a text file, it does not exist")
    digest = hashlib.sha256()
    lines = 0
    with file_faults("read", path), path.open("rb") as file:
        for lines, line in enumerate(file, 1):
            digest.update(line)
            if len(line) > LONGEST_LINE and path.suffix != ".json":
                raise UserError(
                    f"{path} must have lines of at most {LONGEST_LINE:,} bytes, line {lines:,} "
                    f"has {len(line):,}; split or cut it"
                )
            try:
                line.decode()
            except UnicodeDecodeError as error:
                raise UserError(
                    f"{path} must be UTF-8 text, line {lines} is not "
                    f"(byte 0x{line[error.start]:02x} at column {error.start + 1})"
                ) from error
        if path.suffix in (".json", ".jsonl"):
            file.seek(0)
            check_json(file, path, by_line=path.suffix == ".jsonl")
    return lines, digest.hexdigest()


def read_lines(path: Path) -> Iterator[str]:
    r"""A file's lines as `wc -l` counts them, without a byte order mark.

    Only "\n" and "\r\n" end a line. Python's `splitlines`, its universal newlines and the text
    loader of `datasets` also break at other characters, which sentences do contain, and then the
    two sides no longer match.
    """
    with file_faults("read", path), path.open("rb") as file:
        for number, line in enumerate(file):
            line = line if number else line.removeprefix(codecs.BOM_UTF8)
            yield line.removesuffix(b"\n").removesuffix(b"\r").decode()


def json_fault(path: Path) -> str | None:
    """Where a file stops being a list of JSON objects, or of ".jsonl" one in each line, if it does.

    Such as "line 3 must be a JSON object: Expecting value at column 9".
    """
    by_line = path.suffix == ".jsonl"
    texts = read_lines(path) if by_line else [path.read_text(encoding="utf-8-sig")]
    for number, text in enumerate(texts, 1):
        try:
            value = json.loads(text) if text.strip() else {}
        except json.JSONDecodeError as error:
            must = f"{number} must be a JSON object" if by_line else f"{error.lineno} is not JSON"
            return f"line {must}: {error.msg} at column {error.colno}"
        except ValueError as error:
            return f"line {number}: {error}"
        if not (by_line or isinstance(value, list)):
            return f"it must be a list of objects, it is a {type(value).__name__}"
        for place, row in enumerate([value] if by_line else value, 1):
            if not isinstance(row, dict):
                where = f"line {number}" if by_line else f"row {place}"
                return f"{where} must be a JSON object, it is a {type(row).__name__}"
    return None
