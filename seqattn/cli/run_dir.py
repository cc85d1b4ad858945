"""A run's directory: found, claimed, and not shared with another run."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from seqattn.errors import UserError

_VARIABLE = "SEQATTN_RUN_DIR"  # ranks that Lightning starts find the first one's directory here


def choose_run_dir(name: str, run_dir: str | None, resume: str | None) -> Path:
    """Where this run's files go: `run_dir`, or the resumed run's, or runs/NAME/TIME.

    Raises:
        UserError: where the directory holds a run that is not being resumed, or there is none to
            resume.
    """
    inherited = os.environ.get(_VARIABLE)
    if inherited and "LOCAL_RANK" in os.environ:
        return Path(inherited)
    if resume is not None:
        path = Path(resume).expanduser()
        if not (path / "checkpoints" / "last.ckpt").is_file():
            raise UserError(f"resume={resume} holds no checkpoints/last.ckpt to go on from")
    else:
        time = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
        path = Path(run_dir).expanduser() if run_dir else _unused(Path("runs") / name / time)
        if path.is_file():
            raise UserError(f"run_dir={path} is a file; name a directory")
        if (path / "model").exists() or (path / "checkpoints").exists():
            raise UserError(
                f"run_dir={path} already holds a run; go on with it by resume={path}, or name "
                "another directory"
            )
    os.environ[_VARIABLE] = str(path.resolve())
    return path


def is_first_rank() -> bool:
    """Whether this process is the one that writes a run's files."""
    ranks = (os.environ.get(name, "0") for name in ("LOCAL_RANK", "NODE_RANK", "GROUP_RANK"))
    return all(rank == "0" for rank in ranks)


def _unused(path: Path) -> Path:
    number = 1
    candidate = path
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}_{number}")
    return candidate


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Holds a run directory for this process; ranks above the first share the first one's claim.

    Raises:
        UserError: where another process holds it.
    """
    if not is_first_rank():
        yield
        return
    path.mkdir(parents=True, exist_ok=True)
    with (path / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(
                f"run_dir={path} is in use by another process; wait for it, or name another"
            ) from error
        try:
            yield
        finally:
            os.environ.pop(_VARIABLE, None)
