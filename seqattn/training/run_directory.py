"""A run's directory: not another run's, and held by one process."""

import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import zip_longest
from pathlib import Path

from filelock import FileLock, SoftFileLock, Timeout

from seqattn.errors import UserError
from seqattn.processes import is_alive
from seqattn.storage import file_faults


def rank() -> int:
    """This process's number among those that train together, as torchrun or SLURM gives it."""
    return int(os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or 0)


def world_size() -> int:
    """How many processes train together, as torchrun or SLURM says; 1 where neither does."""
    if "SLURM_PROCID" in os.environ and "WORLD_SIZE" not in os.environ:
        return int(os.environ.get("SLURM_NTASKS") or 1)  # in an interactive shell there is no rank
    return int(os.environ.get("WORLD_SIZE") or 1)


def has_checkpoint(path: Path) -> bool:
    """Whether a run can go on from what its directory holds. Args: path: the directory."""
    return any((path / "checkpoints").glob("step-*.ckpt"))


@contextmanager
def claimed(path: Path, key: str = "run_dir") -> Iterator[None]:
    """Holds a directory for this process; one that was made for nothing is taken away.

    A process that has died holds nothing.

    Args:
        path: the directory, made if absent.
        key: what names it in messages.

    Raises:
        UserError: where another process holds it, or it cannot be written.
    """
    file = path / ".lock"
    lock = FileLock(file)
    with file_faults("write", path):
        path.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise UserError(
                f"{key}={path} is in use by {_holder(file)}; wait for it, or name another"
            ) from error
    try:
        if not isinstance(lock, SoftFileLock):  # which has written the same
            with suppress(OSError):  # a note, without which the lock is as good
                file.write_text(f"{os.getpid()}\n{platform.node()}\n", encoding="utf-8")
        yield
    finally:
        file.unlink(missing_ok=True)  # while it is held, so that it is our own
        lock.release()
        remove_empty(path)


def _holder(file: Path) -> str:
    """Return what holds a lock, by the note in its file, which may be of a process long gone."""
    with suppress(OSError, ValueError):
        pid, host, *_ = file.read_text(encoding="utf-8").split()
        if int(pid) > 0 and (host != platform.node() or is_alive(int(pid))):
            return f"process {int(pid)} on {host}"
    return "another process"


@contextmanager
def room_for_files(path: Path) -> Iterator[None]:
    """Makes a directory before what takes time; one that stays empty is taken away.

    Raises:
        UserError: it cannot be made or written.
    """
    try:
        with file_faults("write", path):
            path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise UserError(f"cannot write {path}: it is read-only")
        yield
    finally:
        with suppress(OSError):  # of a name too long to be looked for
            remove_empty(path)


def remove_empty(path: Path) -> None:
    """Removes a directory that holds nothing, and those above it that it leaves empty."""
    path = path.resolve()
    for folder in (path, *path.parents):
        if folder == Path.cwd():
            return
        try:
            folder.rmdir()
        except OSError:  # it holds something, or another process has removed it
            return


def distinct_names(directories: Sequence[Path]) -> list[str]:
    """The parts of each path that tell it from the others."""
    named = [path.relative_to(path.anchor).parts for path in directories]
    from_the_end = zip_longest(*(parts[::-1] for parts in named), fillvalue="")
    telling = [parts for parts in reversed([*from_the_end]) if len(set(parts)) > 1]
    return [
        "/".join(parts[number] for parts in telling if parts[number]) or str(path)
        for number, path in enumerate(directories)
    ]
