"""State of a run, from its directory: new, resumable or finished."""

import os
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from seqattn.checking import Count, Seed
from seqattn.errors import UserError
from seqattn.inputs import read_yaml
from seqattn.roles import Role
from seqattn.training.options import TrainingOptions
from seqattn.training.run_directory import has_checkpoint
from seqattn.training.setting_roles import differences

FORMAT = "seqattn run 3"
Phase = Literal["begin", "go on", "finished"]
RESULT = "result.yaml"
"""File with the result of a run, written when it is finished."""


class _Settings(BaseModel):
    """Settings that all runs have; other keys are not checked."""

    seed: Seed
    threads: Count | None = None
    choices: dict[str, str]
    data: dict[str, Any]
    loader: dict[str, Any]
    model: dict[str, Any]
    task: dict[str, Any]
    trainer: dict[str, Any]
    checkpoint: dict[str, Any]
    generation: dict[str, Any]


def phase_of(run: TrainingOptions) -> Phase:
    """Return whether the run in its directory is new, resumable or finished.

    Raises:
        UserError: its directory holds a different run, or no run although one was requested.
    """
    home = Path(run.run_dir)
    if run.resumes_another:
        if not has_checkpoint(home):
            raise UserError(f"resume={run.resume} holds no checkpoints/step-*.ckpt to go on from")
        return "go on"
    if not has_checkpoint(home) and not (home / "model").exists():
        return "begin"
    # after a rank has died, torchrun restarts all of them
    if not run.resume and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
        raise UserError(
            f"run_dir={home} already holds a run; go on with it by resume=auto, or name another "
            "directory"
        )
    before = settings_before(home, f"run_dir={home}")
    settings = dict(run.settings)
    if before.get("init_from"):  # it has that bundle's tokenizer
        del settings["tokenizer"]
    found = differences(before, settings, {Role.STEP, Role.SHAPE})
    if found:
        shapes = differences(before, settings, {Role.SHAPE})
        others = "" if shapes else f"go on with others by resume={home}, "
        raise UserError(
            f"run_dir={home} holds a run with {', '.join(found)}; give the same, {others}or name "
            "another directory"
        )
    ended = (home / RESULT).is_file() and (home / "model").exists()
    if ended and not differences(before, settings, {Role.END, Role.SCORE}):
        return "finished"
    if not has_checkpoint(home):
        raise UserError(f"run_dir={home} holds a bundle and no checkpoint; name another directory")
    return "go on"


def settings_before(home: Path, asked: str) -> dict[str, Any]:
    """Read the settings of a run. Args: asked: the key and value that name it, for messages.

    Raises:
        UserError: they cannot be read, or are of another version.
    """
    file = home / "config.yaml"
    damaged = f"{asked}: {file} cannot be read; start a run anew"
    try:
        before = read_yaml(file)
    except UserError as error:
        raise UserError(damaged) from error
    if not isinstance(before, dict) or before.get("format") != FORMAT:
        raise UserError(
            f"{asked} was written by another version of seqattn and cannot go on; begin a new run "
            f"with its weights by init_from={home}/model"
        )
    try:
        _Settings.model_validate(before)
    except ValidationError as error:
        raise UserError(damaged) from error
    return before
