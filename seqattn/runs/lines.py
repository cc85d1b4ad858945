"""Lines of text or of JSON in, lines of text out."""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from seqattn.errors import UserError
from seqattn.storage import file_faults

LONGEST = 500_000
"""Bytes of a line at most; a longer one would be searched for minutes."""


def read_texts(path: Path, column: str | None = None) -> list[str]:
    """The lines of a UTF-8 file, empty ones included, or the texts of one of JSON lines.

    Args:
        path: ends in ".jsonl" where every line is an object with a text; only there can a text
            have several lines.
        column: the text's name in such an object, a dot leads into nested ones; None for the first
            of those of known data sets that is there.

    Raises:
        UserError: where it is absent, or names the line that is wrong.
    """
    if not path.is_file():
        raise UserError(f"input={path} is not a file")
    with path.open("rb") as file:
        lines = decoded(file, str(path))
        if path.suffix != ".jsonl":
            return list(lines)
        names = _known_names() if column is None else (column,)
        expected = f'expected {{"{column or "document"}": "..."}}'
        texts = []
        for row, where in rows_of(lines, str(path), expected):
            found = [text for name in names if isinstance(text := _nested(row, name), str)]
            if not found:
                raise UserError(f"{where} has no text under {', '.join(names)}; {expected}")
            texts.append(found[0])
        return texts


def _known_names() -> tuple[str, ...]:
    from seqattn.data.table import KNOWN_PAIRS  # `datasets` takes seconds to import

    return tuple(dict.fromkeys(source for source, _ in KNOWN_PAIRS))


def _nested(row: Any, column: str) -> Any:
    for name in column.split("."):
        row = row.get(name) if isinstance(row, dict) else None
    return row


def rows_of(lines: Iterable[str], name: str, expected: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Objects from lines of JSON, and where each stands; blank lines are passed over.

    Args:
        lines: without their ends.
        name: of the file.
        expected: what a line should be, in the words of a message.

    Raises:
        UserError: naming the line that is no JSON object.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{name} line {number}"
        try:
            row = json.loads(line)
            json.dumps(row, ensure_ascii=False).encode()  # halves of surrogate pairs are no text
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where} is not JSON; {expected}") from error
        if not isinstance(row, dict):
            raise UserError(f"{where} is not a JSON object; {expected}")
        yield row, where


def decoded(lines: Iterable[bytes], name: str) -> Iterator[str]:
    """Lines as text, without their ends.

    Raises:
        UserError: naming the line that is not UTF-8, or longer than `LONGEST`.
    """
    for number, line in enumerate(lines, start=1):
        if len(line) > LONGEST:
            raise UserError(
                f"{name} line {number} has {len(line):,} bytes, which is more than {LONGEST:,}; "
                "split it"
            )
        try:
            yield line.rstrip(b"\r\n").decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(f"{name} line {number} is not UTF-8 text; convert the file") from error


def in_one_line(text: str) -> str:
    """The text with spaces for its line breaks; all else that Python calls one stays."""
    return re.sub(r"[\r\n]+", " ", text)


def typed_lines() -> Iterator[str]:
    """The lines of standard input, each as soon as it is there.

    Raises:
        UserError: where standard input is closed.
    """
    if sys.stdin is None:
        raise UserError("standard input is closed; give input=FILE")
    return decoded(iter(sys.stdin.buffer.readline, b""), "standard input")


def write_lines(lines: Iterable[str], output: str | None) -> None:
    """To standard output as they come, or to a file that appears when it is whole.

    Raises:
        UserError: where the file's directory is not there, or standard output is closed.
    """
    if output is None:
        if sys.stdout is None:
            raise UserError("standard output is closed; give output=FILE")
        for line in lines:
            print(line, flush=True)
        return
    path = Path(output).expanduser()
    if path.is_dir():
        raise UserError(f"output={path} is a directory; name a file")
    if not path.parent.is_dir():
        raise UserError(f"output={path}: the directory {path.parent} is not there; make it first")
    if path.is_symlink() or (path.exists() and not path.is_file()):  # as /dev/stdout, which stays
        with file_faults("write", path), path.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with file_faults("write", path):
        try:
            with temporary.open("w", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in lines)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
