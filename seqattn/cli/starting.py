"""`init_from=BUNDLE`: a new run that begins with the weights and tokenizer of a bundle."""

import sys
from collections.abc import Sequence
from typing import Any

from torch import nn

from seqattn.cli.bundle import Bundle, load_bundle
from seqattn.cli.bundle_files import part_of
from seqattn.cli.config import SLOTS
from seqattn.errors import UserError

Config = dict[str, Any]
_SHAPING = ("model", "position", *SLOTS)
"""Nodes that a model is made from."""


def starting_bundle(config: Config, overrides: Sequence[str]) -> Bundle | None:
    """The bundle that a run begins with; None where it begins at random, or goes on.

    Args:
        config: the run's, resolved; `tokenizer` becomes the bundle's own.
        overrides: the user's.

    Raises:
        UserError: where there is no such bundle, or another tokenizer is asked for.
    """
    path = config["init_from"]
    if path is None or config["resume"] is not None:
        return None
    bundle = load_bundle(path)
    theirs, ours = part_of(bundle.config, "tokenizer", path), config["tokenizer"]
    asked = [o for o in overrides if o.startswith(("tokenizer=", "tokenizer."))]
    if asked and theirs != ours:
        differing = _differences(bundle.config, config, ["tokenizer"])
        raise UserError(
            f"init_from={path} brings its own tokenizer; leave {asked[0]} out "
            f"(it has {', '.join(differing)})"
        )
    config["tokenizer"] = theirs
    return bundle


def begin_from(bundle: Bundle, model: nn.Module, config: Config) -> None:
    """Puts a bundle's weights into the model of a new run.

    Settings that change no shape may differ, a kernel for one; they are told on standard error.

    Args:
        bundle: where the run begins.
        model: made from `config`.
        config: the run's, resolved.

    Raises:
        UserError: where the weights do not fit, with what would make them fit.
    """
    theirs, ours = bundle.model.state_dict(), model.state_dict()
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


def _differences(theirs: Config, ours: Config, nodes: Sequence[str]) -> list[str]:
    """How a bundle's configuration differs from a run's, as one would write it in overrides."""
    found = []
    for node in nodes:
        there, here = theirs.get(node) or None, ours.get(node) or None
        key = f"attention@{node}" if node in SLOTS[1:] else node
        choices = [config.get("choices", {}).get(key) for config in (theirs, ours)]
        if (there is None) != (here is None) or choices[0] != choices[1]:
            found.append(f"{key}={choices[0] or ('null' if there is None else 'NAME')}")
        if isinstance(there, dict) and isinstance(here, dict):
            found += _changed(there, here, node)
    return found


def _changed(theirs: Config, ours: Config, where: str) -> list[str]:
    """Values that both have and that differ; of one class alone, for another has other keys."""
    if theirs.get("_target_") != ours.get("_target_"):
        return []
    found = []
    for key in theirs.keys() & ours.keys():
        there, here = theirs[key], ours[key]
        if isinstance(there, dict) and isinstance(here, dict):
            found += _changed(there, here, f"{where}.{key}")
        elif there != here:
            found.append(f"{where}.{key}={'null' if there is None else there}")
    return sorted(found)
