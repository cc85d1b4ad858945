"""Whether a run begins, goes on, or is finished: what its directory says."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml

from seqattn.bundle.choices import SLOT_NODES
from seqattn.bundle.nodes import TARGET
from seqattn.errors import UserError
from seqattn.runs.run_directory import has_checkpoint
from seqattn.runs.training_options import TrainingOptions

FORMAT = "seqattn run 3"
Place = Literal["begin", "go on", "finished"]
RESULT = "result.yaml"
"""What a finished run came to; it is there when all is done."""
_STEPS = (
    "trainer.accumulate_grad_batches",
    "trainer.precision",
    "trainer.gradient_clip_val",
    "trainer.fast_dev_run",
)
"""What of the trainer a step depends on."""
_FREE = (
    "run_dir", "resume", "overrides", "choices", "name", "cache_dir", "logger", "checkpoint",
    "generation", "task.final", "task.validation", "task.scorer", "loader.num_workers",
    "loader.pin_memory", "model.checkpoint_activations",
)  # fmt: skip
"""What else no step depends on; a run may go on with others than it had."""
_ENDS = ("trainer.max_steps", "trainer.max_epochs", "checkpoint", "generation", "task")
"""What decides where a run ends, and how it is scored there."""


def place_of(run: TrainingOptions) -> Place:
    """What a run in its directory is: one to begin, to go on with, or one that is finished.

    Raises:
        UserError: where its directory holds another run, or none that was asked for.
    """
    home = Path(run.run_dir)
    if isinstance(run.resume, str) and run.resume != "auto":
        if not has_checkpoint(home):
            raise UserError(f"resume={run.resume} holds no checkpoint to go on from")
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
    # a run that began with a bundle has its tokenizer, whatever the settings say
    nodes = [node for node in run.settings if node != "tokenizer" or not run.init_from]
    differing = differences(before, run.settings, nodes)
    found = [word for word in differing if _is_kept(word)]
    if found:
        raise UserError(
            f"run_dir={home} holds a run with {', '.join(found)}; give the same, go on with others "
            f"by resume={home}, or name another directory"
        )
    ended = (home / RESULT).is_file() and (home / "model").exists()
    if ended and not any(map(_is_end, differing)):
        return "finished"
    if not has_checkpoint(home):
        raise UserError(f"run_dir={home} holds a bundle and no checkpoint; name another directory")
    return "go on"


def settings_before(home: Path, asked: str) -> dict[str, Any]:
    """The settings that a run has. Args: asked: the words that name it, for messages.

    Raises:
        UserError: where they cannot be read, or are of another version.
    """
    file = home / "config.yaml"
    try:
        before = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{asked}: {file} cannot be read; start a run anew") from error
    if not isinstance(before, dict) or before.get("format") != FORMAT:
        raise UserError(
            f"{asked} was written by another version of seqattn and cannot go on; begin a new run "
            f"with its weights by init_from={home}/model"
        )
    return before


def differences(
    theirs: Mapping[str, Any], ours: Mapping[str, Any], nodes: Sequence[str]
) -> list[str]:
    """How one configuration differs from another, as one would write it in overrides.

    Another choice is told by its name alone, the same one by the values that both have.
    """
    told = []
    for node in nodes:
        there, here = (dict(_leaves(config.get(node), node)) for config in (theirs, ours))
        classes = [{k: v for k, v in x.items() if k.endswith(TARGET)} for x in (there, here)]
        if classes[0] != classes[1]:
            key = f"attention@{node}" if node in SLOT_NODES else node
            name = (theirs.get("choices") or {}).get(key)
            told.append(f"{key}={name or ('NAME' if there else 'null')}")
            continue
        for key in sorted(there.keys() & here.keys()):
            if there[key] != here[key]:
                told.append(f"{key}={'null' if there[key] is None else there[key]}")
    return told


def _leaves(node: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Each value of a node with its key; classes by name, which stays when a class moves."""
    if isinstance(node, dict):
        for key, value in node.items():
            own = str(value).rpartition(".")[2] if key == TARGET else value
            yield from _leaves(own, f"{place}.{key}")
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from _leaves(value, f"{place}[{number}]")
    elif node is not None or "." in place:
        yield place, node


def _is_kept(word: str) -> bool:
    """Whether a setting must stay as it was."""
    key = word.partition("=")[0]
    if key.startswith("trainer."):
        return key in _STEPS
    return not any(key == free or key.startswith((f"{free}.", f"{free}[")) for free in _FREE)


def _is_end(word: str) -> bool:
    """Whether a setting decides where a run ends, or how it is scored there."""
    key = word.partition("=")[0]
    return any(key == one or key.startswith(f"{one}.") for one in _ENDS)
