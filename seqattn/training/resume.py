"""State of a run, from its directory: new, resumable or finished."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
import yaml
from pydantic import BaseModel, ValidationError

from seqattn.checking import Count, Seed
from seqattn.errors import UserError
from seqattn.inputs import read_yaml
from seqattn.roles import Role
from seqattn.settings.choices import with_rule_before
from seqattn.storage import write_whole
from seqattn.training.run_directory import has_checkpoint
from seqattn.training.setting_roles import differences
from seqattn.training.settings import TrainingSettings

FORMAT = "seqattn run 3"
Phase = Literal["new", "resumable", "finished"]
LOG = "train.log"
"""File of a run with the lines that its training prints."""
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


def phase_of(run: TrainingSettings) -> Phase:
    """Return whether the run in its directory is new, resumable or finished.

    Raises:
        UserError: if its directory holds a different run, or no run although one was requested.
    """
    run_dir = Path(run.run_dir)
    if run.resumes_another:
        if not has_checkpoint(run_dir):
            raise UserError(f"resume={run.resume} holds no checkpoints/step-*.ckpt to resume from")
        return "resumable"
    if not has_checkpoint(run_dir) and not (run_dir / "model").exists():
        return "new"
    # after a rank has died, torchrun restarts all of them
    if not run.resume and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
        raise UserError(
            f"run_dir={run_dir} already holds a run; continue it with resume=auto, or choose "
            "another directory"
        )
    before = settings_before(run_dir, f"run_dir={run_dir}")
    settings = dict(with_rule_of(run, before).settings)
    if before.get("init_from"):  # it uses that bundle's tokenizer
        del settings["tokenizer"]
    theirs, ours = differences(before, settings, {Role.STEP, Role.SHAPE})
    if theirs:
        shapes, _ = differences(before, settings, {Role.SHAPE})
        change = "" if shapes else f"add resume={run_dir} to change them, "
        raise UserError(
            f"run_dir={run_dir} holds a run with {theirs}, but this command has {ours}; use the "
            f"same settings, {change}or choose another directory"
        )
    ended = (run_dir / RESULT).is_file() and (run_dir / "model").exists()
    if ended and not any(differences(before, settings, {Role.END, Role.SCORE})):
        return "finished"
    if not has_checkpoint(run_dir):
        raise UserError(
            f"run_dir={run_dir} holds a bundle but no checkpoint; choose another directory"
        )
    return "resumable"


def save_settings(run: TrainingSettings) -> None:
    """Write the settings of a run that begins or resumes, which is no longer finished."""
    run_dir = Path(run.run_dir)
    (run_dir / RESULT).unlink(missing_ok=True)
    settings = {"format": FORMAT, "threads": torch.get_num_threads(), **run.settings}
    for name, content in (("config", settings), ("overrides", list(run.overrides))):
        text = yaml.safe_dump(content, sort_keys=False)
        write_whole(run_dir / f"{name}.yaml", text.encode())


def settings_before(run_dir: Path, named: str) -> dict[str, Any]:
    """Read the settings of a run. Args: named: the key and value that name it, for messages.

    Raises:
        UserError: if they cannot be read, or are from another version.
    """
    file = run_dir / "config.yaml"
    damaged = f"{named}: cannot read {file}; start a new run"
    try:
        before = read_yaml(file)
    except UserError as error:
        raise UserError(damaged) from error
    if not isinstance(before, dict) or before.get("format") != FORMAT:
        raise UserError(
            f"{named} was written by another version of seqattn and cannot be resumed; start a new "
            f"run from its weights with init_from={run_dir}/model"
        )
    try:
        _Settings.model_validate(before)
    except ValidationError as error:
        raise UserError(damaged) from error
    return {**before, "data": with_rule_before(before["data"])}


def with_rule_of(run: TrainingSettings, before: Mapping[str, Any]) -> TrainingSettings:
    """Return a run that holds out the rows of the run it resumes, unless it says how."""
    data = run.settings["data"]
    by_pairs = before["data"].get("hold_out_by") == "pair" and "hold_out_by" in data
    if not by_pairs or run.typed("data.hold_out_by"):
        return run
    return run.changed(data={**data, "hold_out_by": "pair"})
