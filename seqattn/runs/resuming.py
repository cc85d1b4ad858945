"""Whether a run begins, goes on, or is finished: what its directory says."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from seqattn.bundle.choices import SLOT_NODES
from seqattn.bundle.nodes import TARGET
from seqattn.checking import Count, Seed
from seqattn.errors import UserError
from seqattn.inputs import read_yaml
from seqattn.runs.run_directory import has_checkpoint
from seqattn.runs.training_options import TrainingOptions

FORMAT = "seqattn run 3"
Phase = Literal["begin", "go on", "finished"]
RESULT = "result.yaml"
"""What a finished run came to; it is there when all is done."""
_FREE = ("run_dir", "resume", "overrides", "choices", "sweep", "name", "cache_dir", "logger",
         "trust", "checkpoint", "generation")  # fmt: skip
"""What no step depends on; a run may go on with others than it had."""
_FREE_PARTS = {
    "data": ("test", "alignments"),
    "task": ("final", "validation", "scorer"),
    "loader": ("num_workers", "pin_memory"),
    "model": ("checkpoint_activations",),
}
SHAPING = ("model", "position", "attention", *SLOT_NODES)
"""Nodes that a model is made from, with which no run goes on."""
_OF_STEPS = ("accumulate_grad_batches", "precision", "gradient_clip_val", "fast_dev_run")
"""What of the trainer a step depends on."""
_OF_ENDS = ("max_steps", "max_epochs")


class _Settings(BaseModel):
    """What all runs have; of other keys nothing is assumed."""

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
    """What a run in its directory is: one to begin, to go on with, or one that is finished.

    Raises:
        UserError: where its directory holds another run, or none that was asked for.
    """
    home = Path(run.run_dir)
    if run.resumes_another:
        if not has_checkpoint(home):
            raise UserError(f"resume={run.resume} holds no checkpoints/step-*.ckpt to go on from")
        return "go on"
    if not has_checkpoint(home) and not (home / "model").exists():
        return "begin"
    # after a rank has died, torchrun starts all of them once more
    if not run.resume and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
        raise UserError(
            f"run_dir={home} already holds a run; go on with it by resume=auto, or name another "
            "directory"
        )
    before = settings_before(home, f"run_dir={home}")
    found = _differ(_steps, before, run.settings)
    if found:
        shapes = any(word.startswith((*SHAPING, "tokenizer")) for word in found)
        others = "" if shapes else f"go on with others by resume={home}, "
        raise UserError(
            f"run_dir={home} holds a run with {', '.join(found)}; give the same, {others}or name "
            "another directory"
        )
    ended = (home / RESULT).is_file() and (home / "model").exists()
    if ended and not _differ(_ends, before, run.settings):
        return "finished"
    if not has_checkpoint(home):
        raise UserError(f"run_dir={home} holds a bundle and no checkpoint; name another directory")
    return "go on"


def settings_before(home: Path, asked: str) -> dict[str, Any]:
    """The settings that a run has, as far as they are looked at. Args: asked: what names it.

    Raises:
        UserError: where they cannot be read, or are of another version.
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


def differences(
    theirs: Mapping[str, Any], ours: Mapping[str, Any], nodes: Sequence[str]
) -> list[str]:
    """How one configuration differs from another, as one would write it in overrides.

    Another choice is told by its name alone, the same one by the values that both have.
    """
    told = []
    for node in nodes:
        there, here = (dict(leaves(config.get(node), node)) for config in (theirs, ours))
        classes = [{k: v for k, v in x.items() if k.endswith(TARGET)} for x in (there, here)]
        if classes[0] != classes[1]:
            key = f"attention@{node}" if node in SLOT_NODES else node
            name = (theirs.get("choices") or {}).get(key)
            told.append(f"{key}={name or ('NAME' if there else 'null')}")
            continue
        for key in sorted(there.keys() | here.keys()):
            one, other = (_value(side, key) for side in (there, here))
            if None not in (one, other) and one != other:
                told.append(f"{key}={one}")
    return told


def _value(values: Mapping[str, Any], key: str) -> str | None:
    """A value as one would write it in an override, "{...}" of keys; None where there is none."""
    if key not in values:
        return "{...}" if any(other.startswith(f"{key}.") for other in values) else None
    value = values[key]
    if isinstance(value, list):
        return f"[{','.join(map(str, value))}]"
    return "null" if value is None else str(value)


def leaves(node: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Each value of a node with its key; classes by name, which stays when a class moves.

    A list of nodes has a key for each, one of plain values is a value.
    """
    if isinstance(node, dict):
        for key, value in node.items():
            own = str(value).rpartition(".")[2] if key == TARGET else value
            yield from leaves(own, f"{place}.{key}")
    elif isinstance(node, list) and any(isinstance(value, dict | list) for value in node):
        for number, value in enumerate(node):
            yield from leaves(value, f"{place}[{number}]")
    else:
        yield place, node


def _steps(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a step depends on."""
    found = {name: node for name, node in settings.items() if name not in _FREE}
    for name, free in _FREE_PARTS.items():
        found[name] = {key: value for key, value in found[name].items() if key not in free}
    found["trainer"] = {key: settings["trainer"].get(key) for key in _OF_STEPS}
    if settings.get("init_from"):  # which has its tokenizer, whatever the settings say
        del found["tokenizer"]
    return found


def _ends(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that decide where a run ends, and how it is scored there."""
    trainer = {key: settings["trainer"].get(key) for key in _OF_ENDS}
    others = {name: settings[name] for name in ("checkpoint", "generation", "task")}
    return {**others, "trainer": trainer}


def _differ(
    part: Callable[[Mapping[str, Any]], dict[str, Any]],
    theirs: Mapping[str, Any],
    ours: Mapping[str, Any],
) -> list[str]:
    """How a part of the settings differs."""
    there, here = part(theirs), part(ours)
    return differences({**there, "choices": theirs.get("choices")}, here, list(here))
