"""Lines of text in, lines of text out."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from seqattn.errors import UserError


def read_texts(path: Path) -> list[str]:
    """The lines of a UTF-8 file, empty ones included.

    Raises:
        UserError: where it is absent, or names the line that is not UTF-8.
    """
    if not path.is_file():
        raise UserError(f"input={path} is not a file")
    with path.open("rb") as file:
        return list(decoded(file, str(path)))


def decoded(lines: Iterable[bytes], name: str) -> Iterator[str]:
    """Lines as text, without their ends.

    Raises:
        UserError: naming the line that is not UTF-8.
    """
    for number, line in enumerate(lines, start=1):
        try:
            yield line.rstrip(b"\r\n").decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(f"{name} line {number} is not UTF-8 text; convert the file") from error


def written(lines: Iterable[str], output: str | None) -> None:
    """To standard output as they come, or to a file that appears when it is whole."""
    if output is None:
        for line in lines:
            print(line, flush=True)
        return
    path = Path(output).expanduser()
    if not path.parent.is_dir():
        raise UserError(f"output={path}: the directory {path.parent} is not there; make it first")
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
