"""Reading lines of text or JSON, and writing lines of text."""

import json
import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from seqattn.data.source_ids import Headed, joined_source
from seqattn.data.text_files import decoded, plain_lines, read_lines
from seqattn.errors import UserError
from seqattn.inputs import read_json, too_long
from seqattn.storage import file_faults, kind_of, user_path, write_whole

LONGEST = 500_000
"""Largest line in bytes; generation from a longer one would take minutes."""
_AT_ONCE = 1 << 16  # bytes, the capacity of a pipe
_PART = 1_024  # lines of a file


def read_texts(
    path: Path | None, data: Mapping[str, Any] | None = None, beside: str | None = None
) -> Iterator[list[tuple[int, str]]]:
    """Yield texts with their line numbers, empty ones included.

    Args:
        path: a UTF-8 file of lines; or of objects with a text, one per line of ".jsonl", or in the
            list or the lines of ".json": only there can a text have several lines. None for
            standard input.
        data: source_column, tag_columns and source_mark of a `Table`, to make a source of such an
            object; without a column, the first known column name is used.
        beside: key, or number from 2 of a tab-separated column, of what texts have as `beside`.

    Returns:
        Texts in parts: those of standard input as they arrive, those of ".json" at once.

    Raises:
        UserError: if a line is invalid; the message names it.
    """
    if path is None or kind_of(path) not in (".jsonl", ".json"):
        parts = _lines(path, beside is not None)
        yield from ([*_beside(part, beside, path)] for part in parts) if beside else parts
        return
    from seqattn.data.table import KNOWN_PAIRS  # `datasets` takes seconds to import

    data = data or {}
    tags, mark, column = (data.get(x) for x in ("tag_columns", "source_mark", "source_column"))
    default_columns = list(dict.fromkeys(source for source, _ in KNOWN_PAIRS))
    columns = [[name] for name in _as_list(column)] or [default_columns]
    expected = f'expected {{"{(_as_list(column) or ["document"])[0]}": "..."}}'
    for rows in json_rows(path, expected):
        part: list[tuple[int, str]] = []
        for number, row, where in rows:
            texts = []
            for names in columns:
                values = [text for name in names if isinstance(text := _nested(row, name), str)]
                if not values:
                    raise UserError(f"{where} has no text under {', '.join(names)}; {expected}")
                texts.append(values[0])
            prefixes = [str(_nested(row, name) or "") for name in _as_list(tags)]
            source = joined_source(prefixes, texts, mark or "")
            if beside and not isinstance(_nested(row, beside), str):
                raise UserError(f"{where} has no text under {beside}")
            source.beside = _nested(row, beside) if beside else None
            part.append((number, source))
        yield part


def in_one_line(text: str) -> str:
    """Replace line breaks (only CR and LF) by spaces."""
    return re.sub(r"[\r\n]+", " ", text)


def write_lines(lines: Iterable[str | bytes], output: str | None, end: str = "\n") -> None:
    """Write lines, each with `end`, to standard output as they come, or to a file atomically.

    Bytes are written as they are. A file whose name ends in ".gz" is compressed.

    Raises:
        UserError: if the file's directory does not exist, or standard output is closed.
    """
    if output is None:
        if sys.stdout is None:
            raise UserError("standard output is closed; set output=FILE")
        for line in lines:
            if isinstance(line, bytes):
                sys.stdout.buffer.write(line)
                sys.stdout.flush()
            else:
                print(line, end=end, flush=True)
        return
    path = output_file(output)
    encoded = (line if isinstance(line, bytes) else f"{line}{end}".encode() for line in lines)
    write_whole(path, _packed(encoded) if path.suffix == ".gz" else encoded)


def output_file(output: str) -> Path:
    """Return the path of an output; raise UserError if no file can be there."""
    path = user_path(output)
    with file_faults("write", path):
        if path.is_dir():
            raise UserError(f"output={path} is a directory; give a file name")
        if not path.parent.is_dir():
            missing = f"the directory {path.parent} does not exist; create it first"
            raise UserError(f"output={path}: {missing}")
    return path


def _packed(parts: Iterable[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)  # in gzip format
    for part in parts:
        yield packer.compress(part)
    yield packer.flush()


def _lines(path: Path | None, table: bool = False) -> Iterator[list[tuple[int, str]]]:
    """Yield the numbered lines of a file, or of standard input in parts."""
    if path is not None:
        read = read_lines if table or kind_of(path) == ".jsonl" else plain_lines
        numbered = enumerate(read(path, LONGEST), 1)
        while part := [*islice(numbered, _PART)]:
            yield part
        return
    if sys.stdin is None:
        raise UserError("standard input is closed; set input=FILE")
    first = 1
    for lines in _stdin_parts():
        yield [*enumerate(decoded(lines, "standard input", first), first)]
        first += len(lines)


def _stdin_parts() -> Iterator[list[bytes]]:
    """Yield the available lines of standard input, at least one at a time."""
    prompt, start, first = sys.stdin.isatty(), b"", 1
    stdin: Any = sys.stdin.buffer
    while True:
        if prompt:
            print("> ", end="", file=sys.stderr, flush=True)
        part = stdin.read1(_AT_ONCE)
        *lines, start = (start + part).split(b"\n")
        for number, line in enumerate((*lines, start), first):
            if len(line) > LONGEST:
                raise too_long("standard input", number, LONGEST)
        first += len(lines)
        if not part:
            lines = [start] if start else []
        if lines:
            yield lines
        if not part:
            return


def json_rows(path: Path | None, expected: str) -> Iterator[list[tuple[int, dict[str, Any], str]]]:
    """Yield the objects of a file with their numbers and places, in parts; skip blank lines.

    Args:
        path: a file of JSON lines, or a list of objects if it ends in ".json"; None for JSON lines
            on standard input.
        expected: the expected form, for messages.
    """
    name = str(path or "standard input")
    if path is not None and kind_of(path) == ".json":
        objects = read_json(path, "a list of objects", rows=True)
        numbered = [(number, row, f"{name} row {number}") for number, row in enumerate(objects, 1)]
        yield [(number, _checked(row, where, expected), where) for number, row, where in numbered]
        return
    for lines in _lines(path):
        numbered = [
            (number, line, f"{name} line {number}") for number, line in lines if line.strip()
        ]
        yield [(number, _parsed(line, where, expected), where) for number, line, where in numbered]


def _parsed(line: str, where: str, expected: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
        json.dumps(row, ensure_ascii=False).encode()  # fails for lone surrogates
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is not valid JSON; {expected}") from error
    return _checked(row, where, expected)


def _checked(row: Any, where: str, expected: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise UserError(f"{where} is not a JSON object; {expected}")
    return row


def _beside(rows: Sequence[tuple[int, str]], column: str, path: Path | None) -> Iterator[Any]:
    """Yield numbered lines with their first column as a text, and another one beside it."""
    for number, line in rows:
        first, *fields = line.split("\t")
        try:
            yield number, Headed(first, 0, fields[range(2, len(fields) + 2).index(int(column))])
        except ValueError as error:
            where = f"{path or 'standard input'} line {number}"
            raise UserError(f"{where} has no column {column} after the text and a tab") from error


def _as_list(names: Any) -> list[str]:
    return [names] if isinstance(names, str) else list(names or ())


def _nested(row: Any, column: str) -> Any:
    for name in [column] if column in row else column.split("."):
        row = row.get(name) if isinstance(row, dict) else None
    return row
