"""Files written whole or not at all, and what is wrong with one said in a line."""

import hashlib
import json
import mmap
import os
import secrets
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seqattn.errors import UserError

_STREAMS = ("/dev/", "/proc/")  # whose links name what is open, not a file to replace


@contextmanager
def file_faults(doing: str, path: Path) -> Iterator[None]:
    """Says in one line what the system has against a file: no space, no permission, a long name.

    Args:
        doing: "read", "write" or another verb.
        path: named where the system names no file.

    Raises:
        UserError: such as "cannot write scores.json: No space left on device".
    """
    try:
        yield
    except OSError as error:
        where = error.filename or path
        raise UserError(f"cannot {doing} {where}: {error.strerror or error}") from error
    except (EOFError, zlib.error) as error:  # of packed files
        raise UserError(f"cannot {doing} {path}: {error}") from error


def user_path(name: str | Path) -> Path:
    """A path as a person writes it, where "~" is the home folder.

    Raises:
        UserError: "~NAME" of nobody.
    """
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise UserError(f"{name}: there is no such home folder; write the whole path") from error


def kind_of(path: Path) -> str:
    """What a file's name says it is, such as ".json" of "a.json" and "a.json.gz"."""
    return Path(path.name.removesuffix(".gz")).suffix


def is_file(path: Path) -> bool:
    """Whether a file is there; a name that no file can have is refused."""
    with file_faults("read", path):
        return path.is_file()


def write_whole(path: Path, content: bytes | memoryview | Iterable[bytes]) -> None:
    """Writes a file whole or not at all: a temporary name, fsync, rename, fsync of the folder.

    A link stays, and the file that it names is written. What is there and is no plain file, such as
    a pipe or a device, is written as it is.

    Args:
        path: the file.
        content: all of it, or part after part as it is made.

    Raises:
        UserError: the file cannot be written.
    """
    parts = [content] if isinstance(content, bytes | memoryview) else content
    with file_faults("write", path):
        if path.is_symlink() and path.is_file() and not str(path).startswith(_STREAMS):
            path = path.resolve()
        if path.is_symlink() or (path.exists() and not path.is_file()):
            with path.open("wb") as file:
                file.writelines(parts)
            return
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            with temporary.open("xb") as file:  # never through a link
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            flush(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def digest_of(path: Path) -> str:
    """SHA-256 of a file, read through the page cache."""
    with file_faults("read", path), path.open("rb") as file:
        if not path.stat().st_size:
            return hashlib.sha256().hexdigest()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return hashlib.sha256(content).hexdigest()


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes JSON that a person can read, whole or not at all."""
    write_whole(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


def flush(path: Path) -> None:
    """Waits until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
