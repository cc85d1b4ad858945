"""Lines of text or of JSON in, lines of text out."""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from seqattn.errors import UserError
from seqattn.storage import file_faults, write_whole

LONGEST = 500_000
"""Bytes of a line at most; a longer one would be searched for minutes."""
_QUESTION = 'expected {"question": "...", "context": "..."}'


class Question(NamedTuple):
    """A question on a context, and its name where it has one."""

    question: str
    context: str
    id: str | None


def read_texts(path: Path, column: str | None = None) -> Iterator[str]:
    """The lines of a UTF-8 file, empty ones included, or the texts of one of JSON lines.

    Args:
        path: ends in ".jsonl" where every line is an object with a text; only there can a text
            have several lines.
        column: the text's name in such an object, a dot leads into nested ones; None for the first
            of those of known data sets that is there.

    Raises:
        UserError: naming the line that is wrong.
    """
    if path.suffix != ".jsonl":
        yield from _lines(path)
        return
    from seqattn.data.table import KNOWN_PAIRS  # `datasets` takes seconds to import

    known = dict.fromkeys(source for source, _ in KNOWN_PAIRS)
    names = tuple(known) if column is None else (column,)
    expected = f'expected {{"{column or "document"}": "..."}}'
    for row, where in _rows(_lines(path), str(path), expected):
        found = [text for name in names if isinstance(text := _nested(row, name), str)]
        if not found:
            raise UserError(f"{where} has no text under {', '.join(names)}; {expected}")
        yield found[0]


def read_questions(path: Path | None) -> Iterator[Question]:
    """Questions from JSON lines of a file, or of standard input where there is none.

    Raises:
        UserError: naming the line that asks nothing.
    """
    lines = typed_lines() if path is None else _lines(path)
    for row, where in _rows(lines, str(path or "standard input"), _QUESTION):
        question, context = row.get("question"), row.get("context")
        if not isinstance(question, str) or not isinstance(context, str):
            raise UserError(f"{where} lacks a question or a context; {_QUESTION}")
        if not question.strip():
            raise UserError(f"{where} has an empty question; {_QUESTION}")
        yield Question(question, context, None if row.get("id") is None else str(row["id"]))


def typed_lines() -> Iterator[str]:
    """The lines of standard input, each as soon as it is there.

    Raises:
        UserError: where standard input is closed, or a line is wrong.
    """
    if sys.stdin is None:
        raise UserError("standard input is closed; give input=FILE")
    return _decoded(iter(sys.stdin.buffer.readline, b""), "standard input")


def in_one_line(text: str) -> str:
    """The text with spaces for its line breaks; all else that Python calls one stays."""
    return re.sub(r"[\r\n]+", " ", text)


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
    content = (f"{line}\n".encode() for line in lines)
    if path.is_symlink() or (path.exists() and not path.is_file()):  # as /dev/stdout, which stays
        with file_faults("write", path), path.open("wb") as file:
            file.writelines(content)
    else:
        write_whole(path, content)


def _lines(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        yield from _decoded(file, str(path))


def _decoded(lines: Iterable[bytes], name: str) -> Iterator[str]:
    """Lines as text, without their ends."""
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


def _rows(lines: Iterable[str], name: str, expected: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Objects from lines of JSON, and where each stands; blank lines are passed over."""
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


def _nested(row: Any, column: str) -> Any:
    for name in column.split("."):
        row = row.get(name) if isinstance(row, dict) else None
    return row
