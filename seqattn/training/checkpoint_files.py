"""Checkpoint files that survive a kill at any time, a full disk and a flipped bit."""

import hashlib
import pickle
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins import CheckpointIO

from seqattn.errors import UserError
from seqattn.screen import say
from seqattn.storage import digest_of, file_faults, write_whole

KEPT = "kept"
"""Key under which a checkpoint lists the steps whose weights it needs."""
STATE = "TrainingLoop"
"""Key of the state of the loop's parts among those of callbacks."""
_AT_ONCE = 2
"""Number of checkpoints to keep."""
_DAMAGE = (pickle.UnpicklingError, EOFError, RuntimeError, LookupError, ValueError,
           AttributeError, TypeError)  # fmt: skip
"""Exceptions from reading a damaged checkpoint, depending on where the damage is."""


def step_of(path: Path) -> int:
    """Return the optimizer step in a file's name."""
    return int(path.stem.split("-")[1])


def checkpoints(directory: Path) -> list[Path]:
    """Return a run's checkpoints, newest first, damaged ones included."""
    return sorted(directory.glob("step-*-*.ckpt"), key=step_of, reverse=True)


def weights(directory: Path, step: int) -> Path:
    """Return the file of the weights of a step.

    Raises:
        UserError: if there is none.
    """
    for path in directory.glob(f"weights-{step:06d}-*.ckpt"):
        if is_whole(path):
            return path
    raise UserError(f"{directory}: weights of step {step} missing or damaged; start a new run")


def is_whole(path: Path) -> bool:
    """Return True if a file has the digest in its name."""
    return digest_of(path)[:8] == path.stem.split("-")[2]


def newest_whole(directory: Path, tells: bool = True) -> Path | None:
    """Return the newest undamaged checkpoint of a run, or None if there are no checkpoints.

    Args:
        tells: True to report damaged ones on standard error.

    Raises:
        UserError: if all of them are damaged.
    """
    paths = checkpoints(directory)
    for path in paths:
        if is_whole(path):
            if tells and path is not paths[0]:
                say(f"{paths[0]} is damaged; resuming from {path.name}")
            return path
    if paths:
        raise UserError(
            f"all checkpoints in {directory} are damaged, the last is {paths[0].name}; start a new "
            "run"
        )
    return None


def read(path: Path, **how: Any) -> dict[str, Any]:
    """Read a checkpoint without running code from it. Args: how: arguments of `torch.load`.

    Raises:
        UserError: if it is not a checkpoint, or holds more than weights and numbers.
    """
    try:
        checkpoint: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True, **how)
        for key in {"state_dict", "current_model_state"} & checkpoint.keys():
            weights = checkpoint[key]  # `load_state_dict` takes one number for a scalar, too
            weights |= {n: torch.atleast_1d(x) for n, x in weights.items() if torch.is_tensor(x)}
    except _DAMAGE as error:
        raise UserError(
            f"cannot read {path}, or it contains more than weights and numbers; start a new run"
        ) from error
    return checkpoint


def step_batches(path: Path) -> int:
    """Return the batches of an optimizer step, on all ranks, of the run that wrote a checkpoint.

    Raises:
        UserError: if it was written by an earlier version, with other counters.
    """
    checkpoint = read(path, mmap=True)
    if "validated" not in checkpoint:
        raise UserError(
            f"{path} was written by another version of seqattn and cannot be resumed; start a new "
            f"run from its weights with init_from={path.parents[1]}/model"
        )
    return int(checkpoint["step_batches"])


class CheckpointFiles(CheckpointIO):
    """Write checkpoints atomically, in the background while training continues.

    A file has its digest in its name; it is written and synced to disk under a temporary name, and
    then renamed. The last two are kept, with the weights that they list. Files that a user's
    callback saves under other names are written as they are and kept.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._writer = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[None] | None = None
        self._weight_steps: dict[Path, list[int]] = {}  # of the checkpoints to keep, oldest first

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        """Copy a checkpoint, and write it in the background.

        Args:
            path: `step-000120.ckpt`; the digest is added to the name.

        Raises:
            UserError: if the previous one could not be written.
        """
        self.wait()
        path, steps = Path(path), checkpoint.get(KEPT, [])
        if not self._is_own(path):
            with file_faults("write", path):
                path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, _bytes(checkpoint))
            return
        contents = {path: _bytes(checkpoint)}
        if checkpoint["global_step"] in steps:
            name = f"weights-{checkpoint['global_step']:06d}.ckpt"
            weights = {path.with_name(name): _bytes({"state_dict": checkpoint["state_dict"]})}
            contents = weights | contents  # written before the checkpoint that lists them
        self._writing = self._writer.submit(self._write, contents, steps)

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Read a checkpoint, also of an earlier version; see `read`."""
        checkpoint = read(path)
        _convert(checkpoint)
        self._weight_steps = {Path(path): checkpoint.get(KEPT, [])}
        return checkpoint

    def remove_checkpoint(self, path: Any) -> None:
        """Remove a file of another callback; own files stay until no checkpoint needs them."""
        if not self._is_own(Path(path)):
            Path(path).unlink(missing_ok=True)

    def _is_own(self, path: Path) -> bool:
        return path.parent == self.directory and path.name.startswith("step-")

    def check(self) -> None:
        """Raise UserError early if a write has failed; see `wait`."""
        if self._writing is not None and self._writing.done():
            self.wait()

    def wait(self) -> None:
        """Wait until the last checkpoint is on the disk.

        Raises:
            UserError: if it could not be written.
        """
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _write(self, contents: Mapping[Path, memoryview], steps: list[int]) -> None:
        with file_faults("write", self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
        for path, content in contents.items():
            digest = hashlib.sha256(content).hexdigest()[:8]
            path = path.with_name(f"{path.stem}-{digest}.ckpt")
            write_whole(path, content)
        self._weight_steps.pop(path, None)
        self._weight_steps[path] = steps
        self._weight_steps = dict([*self._weight_steps.items()][-_AT_ONCE:])
        self._sweep()

    def _sweep(self) -> None:
        """Remove files that no checkpoint needs, and partial files left by a kill."""
        needed = {step for steps in self._weight_steps.values() for step in steps}
        stale = [path for path in checkpoints(self.directory) if path not in self._weight_steps]
        files = self.directory.glob("weights-*-*.ckpt")
        stale += [path for path in files if step_of(path) not in needed]
        for path in [*stale, *self.directory.glob(".*.ckpt.*")]:
            path.unlink(missing_ok=True)


def _convert(checkpoint: dict[str, Any]) -> None:
    """Convert the checkpoint of an earlier version of this format, in place."""
    states = checkpoint.setdefault("callbacks", {})
    states.setdefault(STATE, dict(states))  # the loop's parts were callbacks beside the user's
    if "accumulated" in checkpoint:
        _count_steps(checkpoint["loops"]["fit_loop"], checkpoint["accumulated"])


def _count_steps(counters: dict[str, Any], accumulated: int) -> None:
    """Convert the counters of a run whose loader had single batches.

    Args:
        counters: state of Lightning's loops, to be changed.
        accumulated: batches per step on each rank.
    """
    steps = counters["epoch_loop.automatic_optimization.optim_progress"]["optimizer"]["step"]
    manual_steps = counters["epoch_loop.manual_optimization.optim_step_progress"]
    batches = counters["epoch_loop.batch_progress"]
    for part in ("total", "current"):
        manual_steps[part].update({name: steps[part][name] for name in manual_steps[part]})
        ready = batches[part]["ready"]
        beyond = ready - -(-ready // accumulated)
        batches[part] = {name: count - beyond for name, count in batches[part].items()}


def _bytes(content: dict[str, Any]) -> memoryview:
    buffer = BytesIO()
    torch.save(content, buffer)
    return buffer.getbuffer()
