"""Atomic file writes, and file errors as one-line messages."""

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

_STREAMS = ("/dev/", "/proc/")  # their links name open files, which cannot be replaced


@contextmanager
def file_faults(doing: str, path: Path) -> Iterator[None]:
    """Turn the system's file errors (no space, no permission, ...) into one-line UserErrors.

    Args:
        doing: "read", "write" or another verb.
        path: named in the message if the system's error names no file.

    Raises:
        UserError: such as "cannot write scores.json: No space left on device".
    """
    try:
        yield
    except OSError as error:
        where = error.filename or path
        raise UserError(f"cannot {doing} {where}: {error.strerror or error}") from error
    except (EOFError, zlib.error) as error:  # raised by gzip
        raise UserError(f"cannot {doing} {path}: {error}") from error


def default_cache() -> Path:
    """Return the directory of caches: SEQATTN_CACHE in the environment, or ~/.cache/seqattn."""
    return user_path(os.environ.get("SEQATTN_CACHE") or "~/.cache/seqattn")


def user_path(name: str | Path) -> Path:
    """Return the path for a name typed by the user, with "~" expanded.

    Raises:
        UserError: for "~NAME" of an unknown user.
    """
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise UserError(f"{name}: unknown home directory; use an absolute path") from error


def kind_of(path: Path) -> str:
    """Return the suffix without compression: ".json" for "a.json" and "a.json.gz"."""
    return Path(path.name.removesuffix(".gz")).suffix


def is_file(path: Path) -> bool:
    """Return True if a file exists; raise UserError for an impossible file name."""
    with file_faults("read", path):
        return path.is_file()


def write_whole(path: Path, content: bytes | memoryview | Iterable[bytes]) -> None:
    """Write a file atomically: temporary name, fsync, rename, fsync of the directory.

    A symbolic link is kept and its target replaced. A pipe or device is written to directly.

    Args:
        path: the file.
        content: the whole content, or an iterable of its parts.

    Raises:
        UserError: if the file cannot be written.
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
        except OSError as error:
            error.filename = path  # the one that the user knows
            raise
        finally:
            temporary.unlink(missing_ok=True)


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, read through the page cache."""
    with file_faults("read", path), path.open("rb") as file:
        if not path.stat().st_size:
            return hashlib.sha256().hexdigest()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return hashlib.sha256(content).hexdigest()


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write indented JSON atomically."""
    write_whole(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


def flush(path: Path) -> None:
    """Flush a file or directory to disk with fsync."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
