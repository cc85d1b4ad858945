"""Text files, with checks of kind, encoding and line lengths."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice, zip_longest
from pathlib import Path

from seqattn.errors import UserError
from seqattn.inputs import (
    LARGEST,
    check_json,
    check_there,
    limited_lines,
    opened,
    parse_rows,
    read_bytes,
)
from seqattn.storage import kind_of

_MARKUP, _CATALOG, _SUBTITLES = "XML or HTML", "a catalog of messages", "subtitles"
_NOT_PLAIN = {
    **dict.fromkeys((".csv", ".tsv", ".parquet", ".arrow", ".ods", ".xls", ".xlsx"), "a table"),
    **dict.fromkeys((".xml", ".tmx", ".xlf", ".xliff", ".html", ".htm", ".xhtml"), _MARKUP),
    ".sgm": _MARKUP,
    **dict.fromkeys((".po", ".pot"), _CATALOG),
    **dict.fromkeys((".srt", ".vtt"), _SUBTITLES),
    **dict.fromkeys((".doc", ".docx", ".odt", ".pdf", ".rtf", ".zip"), "a document or an archive"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "JSON"),
}
"""Suffixes of files that are not lines of text, and what these are."""
_SIGNS = {
    _MARKUP: re.compile(
        r"\s*<(\?xml\b|!doctype\b|(tmx|xliff|html|svg|srcset|refset)[\s>])", re.IGNORECASE
    ),
    _CATALOG: re.compile(r'(?:[ \t]*(?:#.*)?\n)*msg(?:id|ctxt) "'),
    _SUBTITLES: re.compile(r"\s*(WEBVTT\b|\d+\n\d+:\d\d:\d\d[,.]\d+ -->)"),
    "JSON": re.compile(  # of texts for a model, as a text may be JSON itself
        r'\s*(\[\s*)?\{\s*"(source|target|text|translation|question|context)"\s*:'
    ),
    "a document": re.compile(r"%PDF-|\{\\rtf"),
}
"""Beginnings of such files."""
_FIRST = 20
LONGEST_LINE = 1_000_000
"""Largest line in bytes; documents are far shorter, and sentencepiece would skip longer ones."""


def scan_text(path: Path) -> tuple[int, str]:
    """Scan a UTF-8 file once.

    Returns:
        Its number of lines, counting a last one without a line break, and its SHA-256.

    Raises:
        UserError: if the file is missing, is not UTF-8, has a line longer than `LONGEST_LINE` (for
            ".json", which may be one line, `LARGEST`), or is JSON that crashes readers.
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
    if kind_of(path) == ".json":  # readers load it as a whole
        check_json(read_bytes(path).splitlines(), path)
    return lines, digest.hexdigest()


def read_lines(path: Path, longest: int = LONGEST_LINE) -> Iterator[str]:
    """Yield a file's lines, see `decoded`, of at most `longest` bytes each."""
    with opened(path) as file:
        yield from decoded(limited_lines(file, path, longest), path)


def aligned_lines(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    """Yield the lines of two files in pairs.

    Bytes that are not UTF-8, and lines longer than `LONGEST_LINE`, become U+FFFD.

    Raises:
        UserError: if a file cannot be read, or, at the end, one has more lines.
    """
    with opened(source) as source_file, opened(target) as target_file:
        files = ((source_file, source), (target_file, target))
        lines = (limited_lines(*pair, LONGEST_LINE, cuts=True) for pair in files)
        sides = (decoded(some, name, errors="replace") for some, (_, name) in zip(lines, files))
        for number, (read, translation) in enumerate(zip_longest(*sides)):
            if read is None or translation is None:
                short, long = (source, target) if read is None else (target, source)
                raise UserError(
                    f"source and target must have the same number of lines: {short} ends after "
                    f"{number:,}, {long} has more"
                )
            yield read, translation


def decoded(
    lines: Iterable[bytes], name: object, first: int = 1, errors: str = "strict"
) -> Iterator[str]:
    r"""Decode lines, counted as by `wc -l`, without line ends and a byte order mark.

    Only "\n" and "\r\n" end a line. Python's `splitlines`, its universal newlines and the text
    loader of `datasets` also break at other characters, which occur in sentences, and then the two
    sides no longer match.

    Args:
        lines: each with its end.
        first: the line number of the first in the file.
        errors: treatment of bytes that are not UTF-8, as in `bytes.decode`.

    Raises:
        UserError: if a line is not UTF-8 and `errors` is "strict"; the message names it.
    """
    for number, line in enumerate(lines, first):
        try:
            text = line.decode(errors=errors)
        except UnicodeDecodeError as error:
            raise UserError(
                f"{name} is not valid UTF-8: line {number:,} has byte 0x{line[error.start]:02x} at "
                f"column {error.start + 1}"
            ) from error
        text = text.removeprefix("\ufeff") if number == 1 else text
        yield text.removesuffix("\n").removesuffix("\r")


def json_fault(path: Path) -> str | None:
    """Return why a file has no JSON objects, in a list or one per line (".jsonl"), or None.

    For example, "line 3 is not valid JSON: Expecting value at column 9".
    """
    by_line = kind_of(path) == ".jsonl"
    texts = read_lines(path, LARGEST) if by_line else ["\n".join(read_lines(path, LARGEST))]
    for number, text in enumerate(texts, 1):
        try:
            rows = ([json.loads(text)] if by_line else parse_rows(text)) if text.strip() else []
        except json.JSONDecodeError as error:
            line = number if by_line else error.lineno
            return f"line {line} is not valid JSON: {error.msg} at column {error.colno}"
        except RecursionError:
            return f"line {number} nests lists and objects too deeply"
        except ValueError as error:
            return f"line {number}: {error}"
        for row_number, row in enumerate(rows, 1):
            if not isinstance(row, dict):
                where = f"line {number}" if by_line else f"row {row_number}"
                return f"{where} must be a JSON object, got a {type(row).__name__}"
    return None


def plain_lines(path: Path, longest: int = LONGEST_LINE) -> Iterator[str]:
    """Yield the lines of a file of plain text, as `read_lines`.

    Raises:
        UserError: also for a file of another kind, by its name or its first lines.
    """
    kind = _NOT_PLAIN.get(kind_of(path).lower())
    lines = read_lines(path, longest) if kind is None else iter(())
    first = [*islice(lines, _FIRST)]
    kind = kind or next((k for k, sign in _SIGNS.items() if sign.match("\n".join(first))), None)
    if kind is not None:
        page = "generate markup=html for a page named .html, or " * (kind == _MARKUP)
        raise UserError(
            f"{path} is not plain text, but {kind}; use {page}one text per line, or .jsonl with "
            "one object per line"
        )
    yield from chain(first, lines)
