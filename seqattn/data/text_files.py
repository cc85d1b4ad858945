"""Text files, checked before anything is made of them."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path

from seqattn.errors import UserError
from seqattn.inputs import LARGEST, check_json, check_there, limited_lines, opened, read_bytes
from seqattn.storage import kind_of

LONGEST_LINE = 1_000_000
"""Bytes of a line; a document is far shorter, and sentencepiece would leave longer ones out."""


def scan_text(path: Path) -> tuple[int, str]:
    """Reads a UTF-8 file through once.

    Returns:
        How many lines it has, one without a line break at the end too, and its SHA-256.

    Raises:
        UserError: the file is not there, is not UTF-8, has a line beyond `LONGEST_LINE` (of
            ".json", which may be one line, beyond `LARGEST`), or is JSON that crashes its readers.
    """
    check_there(path, "a text file")
    digest = hashlib.sha256()

    def hashed() -> Iterator[bytes]:
        longest = LARGEST if kind_of(path) == ".json" else LONGEST_LINE
        for line in limited_lines(file, path, longest):
            digest.update(line)
            yield line

    with opened(path) as file:
        lines = sum(1 for _ in decoded(hashed(), path))
        if kind_of(path) == ".jsonl":
            file.seek(0)
            check_json(file, path, by_line=True)
    if kind_of(path) == ".json":  # which readers take whole
        check_json(read_bytes(path).splitlines(), path)
    return lines, digest.hexdigest()


def read_lines(path: Path, longest: int = LONGEST_LINE) -> Iterator[str]:
    """A file's lines as `decoded` gives them, none of which has more than `longest` bytes."""
    with opened(path) as file:
        yield from decoded(limited_lines(file, path, longest), path)


def aligned_lines(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    """The lines of two files, pair by pair.

    U+FFFD stands for bytes that are no UTF-8, and for a whole line beyond `LONGEST_LINE`.

    Raises:
        UserError: a file cannot be read, or one has more lines, which is known at its end.
    """
    with opened(source) as one, opened(target) as other:
        files = ((one, source), (other, target))
        lines = (limited_lines(*both, LONGEST_LINE, cuts=True) for both in files)
        sides = (decoded(some, name, errors="replace") for some, (_, name) in zip(lines, files))
        for number, (read, said) in enumerate(zip_longest(*sides)):
            if read is None or said is None:
                short, long = (source, target) if read is None else (target, source)
                raise UserError(
                    f"both sides must have as many lines, {short} ends after {number:,} and {long} "
                    "goes on"
                )
            yield read, said


def decoded(
    lines: Iterable[bytes], name: object, first: int = 1, errors: str = "strict"
) -> Iterator[str]:
    r"""Lines as text, counted as `wc -l` does, without their ends and a byte order mark.

    Only "\n" and "\r\n" end a line. Python's `splitlines`, its universal newlines and the text
    loader of `datasets` also break at other characters, which sentences do contain, and then the
    two sides no longer match.

    Args:
        lines: each with its end.
        first: the number of the first of them in the file.
        errors: what becomes of bytes that are no UTF-8, as of `bytes.decode`.

    Raises:
        UserError: naming a line that is not UTF-8, of "strict" ones.
    """
    for number, line in enumerate(lines, first):
        try:
            text = line.decode(errors=errors)
        except UnicodeDecodeError as error:
            raise UserError(
                f"{name} must be UTF-8 text, line {number:,} is not "
                f"(byte 0x{line[error.start]:02x} at column {error.start + 1})"
            ) from error
        text = text.removeprefix("\ufeff") if number == 1 else text
        yield text.removesuffix("\n").removesuffix("\r")


def json_fault(path: Path) -> str | None:
    """Where a file stops being a list of JSON objects, or of ".jsonl" one in each line, if it does.

    Such as "line 3 must be a JSON object: Expecting value at column 9".
    """
    by_line = kind_of(path) == ".jsonl"
    texts = read_lines(path, LARGEST) if by_line else ["\n".join(read_lines(path, LARGEST))]
    for number, text in enumerate(texts, 1):
        try:
            value = json.loads(text) if text.strip() else {}
        except json.JSONDecodeError as error:
            must = f"{number} must be a JSON object" if by_line else f"{error.lineno} is not JSON"
            return f"line {must}: {error.msg} at column {error.colno}"
        except RecursionError:
            return f"line {number} nests too many lists and objects"
        except ValueError as error:
            return f"line {number}: {error}"
        if not (by_line or isinstance(value, list)):
            return f"it must be a list of objects, it is a {type(value).__name__}"
        for place, row in enumerate([value] if by_line else value, 1):
            if not isinstance(row, dict):
                where = f"line {number}" if by_line else f"row {place}"
                return f"{where} must be a JSON object, it is a {type(row).__name__}"
    return None
