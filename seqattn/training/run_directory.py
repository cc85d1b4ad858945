"""The directory of a run, locked by one process."""

import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import zip_longest
from pathlib import Path

from filelock import FileLock, SoftFileLock, Timeout

from seqattn.errors import UserError
from seqattn.processes import is_alive
from seqattn.storage import file_faults, real_path

KEPT: set[Path] = set()
"""Directories in which a command writes and which were there before it: they stay if empty."""


def has_checkpoint(path: Path) -> bool:
    """Return True if a run's directory holds a checkpoint. Args: path: the directory."""
    return any((path / "checkpoints").glob("step-*.ckpt"))


@contextmanager
def claimed(path: Path, key: str = "run_dir") -> Iterator[None]:
    """Lock a directory for this process; remove it afterwards if it is new and empty.

    The lock of a dead process is ignored.

    Args:
        path: the directory, created if absent.
        key: its name in messages.

    Raises:
        UserError: if another process holds it, or it cannot be written.
    """
    file = path / ".lock"
    lock = FileLock(file)
    with file_faults("write", path):
        before = existing(path)
        path.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise UserError(
                f"{key}={path} is in use by {_holder(file)}; wait for it, or choose another"
            ) from error
    try:
        if not isinstance(lock, SoftFileLock):  # a soft lock writes the same
            with suppress(OSError):  # only a note; the lock does not need it
                file.write_text(f"{os.getpid()}\n{platform.node()}\n", encoding="utf-8")
        yield
    finally:
        file.unlink(missing_ok=True)  # before unlocking, while it is still ours
        lock.release()
        remove_empty(path, before)


def _holder(file: Path) -> str:
    """Return the holder of a lock from the note in its file, possibly of a dead process."""
    with suppress(OSError, ValueError):
        pid, host, *_ = file.read_text(encoding="utf-8").split()
        if int(pid) > 0 and (host != platform.node() or is_alive(int(pid))):
            return f"process {int(pid)} on {host}"
    return "another process"


@contextmanager
def room_for_files(path: Path) -> Iterator[None]:
    """Create a directory before long work; remove it afterwards if it is new and empty.

    Raises:
        UserError: if it cannot be created or written.
    """
    with file_faults("write", path):
        before = existing(path)
    try:
        with file_faults("write", path):
            path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise UserError(f"cannot write {path}: it is read-only")
        yield
    finally:
        with suppress(OSError):  # a name that is too long
            remove_empty(path, before)


def existing(path: Path) -> Path:
    """Return the innermost directory that exists of a path and its parents."""
    path = real_path(path)
    return next(one for one in (path, *path.parents) if one.exists())


def remove_empty(path: Path, before: Path | None = None) -> None:
    """Remove an empty directory, and parents that become empty, up to one that was there before."""
    try:
        path = real_path(path)
    except UserError:  # links in a circle
        return
    for folder in (path, *path.parents):
        if folder in (Path.cwd(), before, *KEPT):
            return
        try:
            folder.rmdir()
        except OSError:  # not empty, or removed by another process
            return


def distinct_names(directories: Sequence[Path]) -> list[str]:
    """Return the parts of each path that distinguish it from the others."""
    named = [path.relative_to(path.anchor).parts for path in directories]
    from_the_end = zip_longest(*(parts[::-1] for parts in named), fillvalue="")
    telling = [parts for parts in reversed([*from_the_end]) if len(set(parts)) > 1]
    return [
        "/".join(parts[number] for parts in telling if parts[number]) or str(path)
        for number, path in enumerate(directories)
    ]
