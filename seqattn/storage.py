"""Atomic file writes, and file errors as one-line messages."""

import hashlib
import json
import os
import platform
import re
import secrets
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

from seqattn.errors import UserError
from seqattn.processes import is_alive

_OLD = "old"
"""What a new directory has replaced, within a temporary one; removed only if that succeeded."""
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


def real_path(name: str | Path) -> Path:
    """Return the absolute path for a name typed by the user, with "~" and links resolved.

    Raises:
        UserError: for links in a circle, or as `user_path`.
    """
    path = user_path(name)
    try:
        return path.resolve()
    except RuntimeError as error:  # an OSError from Python 3.13 on, when it is opened
        raise UserError(f"{path} is a symbolic link to itself; choose another path") from error


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
        replaced = replaced_file(path)
        if replaced is None:
            with path.open("wb") as file:
                file.writelines(parts)
            return
        path = replaced
        remove_abandoned(path.parent)
        temporary = path.with_name(_temporary_prefix() + secrets.token_hex(4))
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


def replaced_file(path: Path) -> Path | None:
    """Return the file that an atomic write of `path` replaces; None for a pipe or device."""
    if path.is_symlink() and path.is_file() and not str(path).startswith(_STREAMS):
        return path.resolve()
    return None if path.is_symlink() or (path.exists() and not path.is_file()) else path


@contextmanager
def temporary_directory(parent: Path | None = None) -> Iterator[Path]:
    """Yield a new directory that is removed after the block.

    Args:
        parent: directory in which it is created; None for the system's.
    """
    parent = Path(gettempdir()) if parent is None else parent
    remove_abandoned(parent)
    with TemporaryDirectory(
        prefix=_temporary_prefix(), dir=parent, ignore_cleanup_errors=True
    ) as directory:
        yield Path(directory)


@contextmanager
def new_directory(path: Path, last: str) -> Iterator[Path]:
    """Yield an empty directory, and move its files to `path` at the end of the block.

    They arrive all at once, or in an empty or the working directory one by one, so that no shell
    loses the directory in which it is. Other files in `path` stay.

    Args:
        path: the directory, which may exist.
        last: name of the file that arrives last.

    Raises:
        UserError: if it cannot be written; a directory at `path` is then as before.
    """
    with file_faults("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary_directory(path.parent) as temporary:
            new, old = temporary / "new", temporary / _OLD
            new.mkdir()
            try:
                yield new
            except UserError as error:
                if str(new) in str(error):  # the user knows the other name
                    raise UserError(str(error).replace(str(new), str(path))) from error
                raise
            for file in (*new.rglob("*"), new):
                flush(file)
            previous = list(path.iterdir()) if path.exists() else []
            names = sorted((file.name for file in new.iterdir()), key=last.__eq__)
            if not path.exists():
                new.rename(path)
            elif not previous or path.samefile(Path.cwd()):
                for name in names:
                    (new / name).replace(path / name)
            else:
                for file in previous:
                    if file.name not in names:
                        _copy(file, new / file.name)
                try:
                    path.rename(old)
                    new.rename(path)
                except BaseException:  # also a signal's
                    if old.exists() and not path.exists():
                        old.rename(path)
                    raise
            flush(path.parent)


def _copy(path: Path, target: Path) -> None:
    """Copy a file, link or directory."""
    if path.is_dir() and not path.is_symlink():
        shutil.copytree(path, target, symlinks=True)
    else:
        shutil.copy2(path, target, follow_symlinks=False)


def _temporary_prefix() -> str:
    """Return the beginning of temporary names of this process, which names machine and process."""
    return f".seqattn-{_machine()}-{os.getpid():x}-"


@cache
def _machine() -> str:
    """Return 16 digits for this machine and, in containers, its numbering of processes."""
    parts = [platform.node()]
    with suppress(OSError):
        parts.append(Path("/etc/machine-id").read_text(encoding="utf-8"))
    with suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").stat().st_ino))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


@cache
def remove_abandoned(directory: Path) -> None:
    """Remove temporary files that killed processes of this machine have left; once per process."""
    with suppress(OSError):
        for path in directory.iterdir():
            match = re.fullmatch(rf"\.seqattn-{_machine()}-([0-9a-f]+)-\w+", path.name)
            if match is None or is_alive(int(match[1], 16)) or (path / _OLD).exists():
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file.

    Raises:
        UserError: if it cannot be read; for a pipe, which would be waited for.
    """
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is not a regular file; choose another")
    with file_faults("read", path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
