"""Where a run begins: with a bundle's weights, or where an earlier run stopped."""

import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import nn

from seqattn.bundle.bundle import Bundle, load_bundle
from seqattn.bundle.files import part_of
from seqattn.bundle.nodes import build
from seqattn.errors import UserError
from seqattn.runs.train import FORMAT, Training

Config = Mapping[str, Any]
_DAMAGE = (pickle.UnpicklingError, EOFError, RuntimeError, LookupError, ValueError,
           AttributeError, TypeError)  # fmt: skip
"""What reading a checkpoint raises, as it is cut or written over here or there."""
_SLOTS = ("encoder_attention", "decoder_attention", "cross_attention")
_SHAPING = ("model", "position", "attention", *_SLOTS)
"""Nodes that a model is made from."""
_FREE = ("dropout", "checkpoint_activations", "batch_size")
"""Keys of those nodes that a run may change when it goes on."""


def starting_bundle(run: Training) -> tuple[Bundle | None, Training]:
    """The bundle that a run begins with, and the run with its tokenizer's settings.

    None where it begins at random, or goes on.

    Raises:
        UserError: where there is no such bundle, or another tokenizer is asked for.
    """
    if run.init_from is None or run.resume is not None:
        return None, run
    bundle = load_bundle(run.init_from)
    asked = [word for word in run.overrides if word.startswith(("tokenizer=", "tokenizer."))]
    found = [*_differences(bundle.config, run.settings, ["tokenizer"])]
    if asked and found:
        raise UserError(
            f"init_from={run.init_from} brings its own tokenizer; leave {asked[0]} out "
            f"(it has {', '.join(found)})"
        )
    node = part_of(bundle.config, "tokenizer", run.init_from)
    return bundle, replace(run, tokenizer=build(node, "tokenizer"))


def begin_from(bundle: Bundle, model: nn.Module, run: Training) -> None:
    """Puts a bundle's weights into the model of a new run.

    Settings that change no shape may differ, a kernel for one; they are told on standard error.

    Raises:
        UserError: where the weights do not fit, with what would make them fit.
    """
    theirs, ours = bundle.model.state_dict(), model.state_dict()
    config = run.settings
    differing = " ".join(_differences(bundle.config, config, _SHAPING))
    for name in {**ours, **theirs}:
        shapes = [tuple(state[name].shape) if name in state else None for state in (theirs, ours)]
        if shapes[0] != shapes[1]:
            sides = [f"is {shape}" if shape else "is not" for shape in shapes]
            raise UserError(
                f"init_from={bundle.path} does not fit: {name} {sides[0]} there and {sides[1]} "
                f"here; it was trained with {differing or 'another vocabulary'}"
            )
    model.load_state_dict(theirs)
    if differing:
        print(f"init_from={bundle.path} was trained with {differing}", file=sys.stderr)


def check_resumed(run: Training) -> None:
    """Refuses to go on with another model or vocabulary than the run has.

    Raises:
        UserError: naming the settings that differ, or for a run that cannot be read.
    """
    file = Path(run.run_dir) / "config.yaml"
    try:
        before = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"resume={run.resume}: {file} cannot be read; start a run anew") from error
    if not isinstance(before, dict) or before.get("format") != FORMAT:
        raise UserError(
            f"resume={run.resume} was written by another version of seqattn and cannot go on; "
            f"begin a new run with its weights by init_from={run.resume}/model"
        )
    # a run that began with a bundle has its tokenizer, whatever the settings say
    nodes = _SHAPING if run.init_from else (*_SHAPING, "tokenizer")
    differing = [
        word
        for word in _differences(before, run.settings, nodes)
        if word.partition("=")[0].rpartition(".")[2] not in _FREE
    ]
    if differing:
        raise UserError(
            f"resume={run.resume} cannot go on with another model or vocabulary: it has "
            f"{', '.join(differing)}"
        )
    _check_checkpoint(Path(run.run_dir) / "checkpoints" / "last.ckpt")


def _check_checkpoint(file: Path) -> None:
    try:
        found = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except _DAMAGE as error:
        raise UserError(
            f"{file} cannot be read, or holds more than weights and numbers; start a run anew"
        ) from error
    if not isinstance(found, dict) or not {"state_dict", "optimizer_states"} <= found.keys():
        raise UserError(f"{file} cannot be read, it is no checkpoint of a run; start a run anew")


def _differences(theirs: Config, ours: Config, nodes: Sequence[str]) -> Iterator[str]:
    """How one configuration differs from another, as one would write it in overrides."""
    for node in nodes:
        there, here = theirs.get(node) or None, ours.get(node) or None
        key = f"attention@{node}" if node in _SLOTS else node
        if _kind(there) != _kind(here):
            name = (theirs.get("choices") or {}).get(key)
            yield f"{key}={name or ('null' if there is None else 'NAME')}"
        yield from _changed(there, here, node)


def _kind(node: Any) -> Any:
    """What tells one choice from another: its class, and that of the kernel in it."""
    if isinstance(node, list):
        return [_kind(part) for part in node]
    if not isinstance(node, dict):
        return None
    return _class(node), _kind(node.get("kernel"))


def _class(node: Config) -> str:
    """The name of a node's class, which has one path where it is defined and others by import."""
    return str(node.get("_target_")).rpartition(".")[2]


def _changed(theirs: Any, ours: Any, where: str) -> Iterator[str]:
    """Values that both have and that differ; of one class alone, for another has other keys."""
    if not isinstance(theirs, dict) or not isinstance(ours, dict):
        return
    if _class(theirs) != _class(ours):
        return
    for key in sorted((theirs.keys() & ours.keys()) - {"_target_"}):
        there, here = theirs[key], ours[key]
        if isinstance(there, dict) and isinstance(here, dict):
            yield from _changed(there, here, f"{where}.{key}")
        elif there != here:
            yield f"{where}.{key}={'null' if there is None else there}"
