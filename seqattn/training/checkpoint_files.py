"""Files of checkpoints that survive a kill at any instant, a full disk and a flipped bit."""

import hashlib
import pickle
import sys
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins import CheckpointIO

from seqattn.errors import UserError
from seqattn.storage import digest_of, file_faults, write_whole

KEPT = "kept"
"""Where a checkpoint lists the steps whose weights it needs, its own among them or not."""
_AT_ONCE = 2
"""Checkpoints that stay."""
_DAMAGE = (pickle.UnpicklingError, EOFError, RuntimeError, LookupError, ValueError,
           AttributeError, TypeError)  # fmt: skip
"""What reading one raises, as it is cut or written over here or there."""


def step_of(path: Path) -> int:
    """The optimizer step in a file's name."""
    return int(path.stem.split("-")[1])


def checkpoints(directory: Path) -> list[Path]:
    """A run's checkpoints, the newest first, whole or not."""
    return sorted(directory.glob("step-*-*.ckpt"), key=step_of, reverse=True)


def weights(directory: Path, step: int) -> Path:
    """The file of the weights of a step.

    Raises:
        UserError: there is none.
    """
    for path in directory.glob(f"weights-{step:06d}-*.ckpt"):
        if is_whole(path):
            return path
    raise UserError(f"{directory} has no whole weights of step {step}; start a run anew")


def is_whole(path: Path) -> bool:
    """Whether a file has the digest that its name says."""
    return digest_of(path)[:8] == path.stem.split("-")[2]


def newest_whole(directory: Path, tells: bool = True) -> Path | None:
    """The newest checkpoint of a run that is whole; None where there is none at all.

    Args:
        tells: whether to say on standard error what is passed over.

    Raises:
        UserError: there are some, and none is whole.
    """
    found = checkpoints(directory)
    for path in found:
        if is_whole(path):
            if tells and path is not found[0]:
                print(f"{found[0]} is damaged; going on from {path.name}", file=sys.stderr)
            return path
    if found:
        raise UserError(
            f"no checkpoint in {directory} is whole, {found[0].name} was the last; start a run anew"
        )
    return None


def read(path: Path, **how: Any) -> dict[str, Any]:
    """What a checkpoint holds, read without running anyone's code. Args: how: as of `torch.load`.

    Raises:
        UserError: it is no checkpoint, or holds more than weights and numbers.
    """
    try:
        found: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True, **how)
    except _DAMAGE as error:
        raise UserError(
            f"{path} cannot be read, or holds more than weights and numbers; start a run anew"
        ) from error
    return found


def step_batches(path: Path) -> int:
    """Return the batches of an optimizer step, on all ranks, of the run that wrote a checkpoint.

    Raises:
        UserError: it has other counters, of an earlier version.
    """
    found = read(path, mmap=True)
    if "validated" not in found:
        raise UserError(
            f"{path} was written by another version of seqattn and cannot be resumed; begin a new "
            f"run with its weights by init_from={path.parents[1]}/model"
        )
    return int(found["step_batches"])


class CheckpointFiles(CheckpointIO):
    """Writes checkpoints beside each other, whole or not at all, while training goes on.

    A file has its digest in its name, is written under another and is on the disk before it gets
    its own. The last two stay, with the weights that they list. What a callback of a person's own
    saves under another name is written as it is, and stays.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._writer = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[None] | None = None
        self._listed: dict[Path, list[int]] = {}  # of the checkpoints that stay, oldest first

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        """Takes a copy of a checkpoint, and writes it in the background.

        Args:
            path: `step-000120.ckpt`, to which the digest is added.

        Raises:
            UserError: where the one before could not be written.
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
            own = {path.with_name(name): _bytes({"state_dict": checkpoint["state_dict"]})}
            contents = own | contents  # what is listed is there before the list
        self._writing = self._writer.submit(self._write, contents, steps)

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """What a checkpoint holds; see `read`."""
        found = read(path)
        self._listed = {Path(path): found.get(KEPT, [])}
        return found

    def remove_checkpoint(self, path: Any) -> None:
        """Removes a file of another's; one of ours goes when no checkpoint that stays needs it."""
        if not self._is_own(Path(path)):
            Path(path).unlink(missing_ok=True)

    def _is_own(self, path: Path) -> bool:
        return path.parent == self.directory and path.name.startswith("step-")

    def check(self) -> None:
        """Tells at once, where what was saved could not be written; see `wait`."""
        if self._writing is not None and self._writing.done():
            self.wait()

    def wait(self) -> None:
        """Waits until what was saved is on the disk.

        Raises:
            UserError: it could not be written.
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
        self._listed = {**{p: s for p, s in self._listed.items() if p != path}, path: steps}
        self._listed = dict(list(self._listed.items())[-_AT_ONCE:])
        self._sweep()

    def _sweep(self) -> None:
        """Takes away what no checkpoint that stays needs, and what a kill left half written."""
        needed = {step for steps in self._listed.values() for step in steps}
        stale = [path for path in checkpoints(self.directory) if path not in self._listed]
        kept = self.directory.glob("weights-*-*.ckpt")
        stale += [path for path in kept if step_of(path) not in needed]
        for path in [*stale, *self.directory.glob(".*.ckpt.*")]:
            path.unlink(missing_ok=True)


def _bytes(content: dict[str, Any]) -> memoryview:
    buffer = BytesIO()
    torch.save(content, buffer)
    return buffer.getbuffer()
