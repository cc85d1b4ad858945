"""A run's directory: not another run's, and held by one process."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from seqattn.errors import UserError


def rank() -> int:
    """This process's number among those that train together, as torchrun or SLURM gives it."""
    return int(os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or 0)


def world_size() -> int:
    """How many processes train together, as torchrun or SLURM says; 1 where neither does."""
    if "SLURM_PROCID" in os.environ and "WORLD_SIZE" not in os.environ:
        return int(os.environ.get("SLURM_NTASKS") or 1)  # in an interactive shell there is no rank
    return int(os.environ.get("WORLD_SIZE") or 1)


@contextmanager
def claimed(path: Path, resumes: bool) -> Iterator[None]:
    """Holds a run's directory for this process; one that was made for nothing is taken away.

    Ranks above the first hold nothing: the first one's claim is theirs.

    Args:
        path: the directory, made if absent.
        resumes: whether it must hold a run to go on with, or must hold none.

    Raises:
        UserError: where it does not, or another process holds it.
    """
    if resumes and not any((path / "checkpoints").glob("step-*.ckpt")):
        raise UserError(f"resume={path} holds no checkpoints/step-*.ckpt to go on from")
    if not resumes and ((path / "model").exists() or (path / "checkpoints").exists()):
        raise UserError(
            f"run_dir={path} already holds a run; go on with it by resume={path}, or name "
            "another directory"
        )
    if rank() > 0:
        yield
        return
    path.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise UserError(
            f"run_dir={path} is in use by another process; wait for it, or name another"
        ) from error
    try:
        yield
    finally:
        lock.release()
        (path / ".lock").unlink(missing_ok=True)
        remove_empty(path)


def remove_empty(path: Path) -> None:
    """Removes a directory that holds nothing, and those above it that it leaves empty."""
    path = path.resolve()
    for folder in (path, *path.parents):
        if folder == Path.cwd() or not folder.is_dir() or any(folder.iterdir()):
            return
        folder.rmdir()
