"""Where a run begins: with a bundle's weights, or where an earlier run stopped."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from torch import nn

from seqattn.bundle.bundle import Bundle, load_bundle
from seqattn.bundle.files import part_of
from seqattn.bundle.nodes import build
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.runs.resuming import SHAPING, differences, settings_before
from seqattn.runs.run_directory import rank
from seqattn.runs.training_options import TrainingOptions
from seqattn.training.checkpoint_files import newest_whole, step_batches

_FREE = ("dropout", "checkpoint_activations", "batch_size")
"""Keys of those nodes that a run may change when it goes on."""


class Start(NamedTuple):
    """Where a run begins: at random where it has neither a bundle nor a tokenizer."""

    run: TrainingOptions
    """With the settings of the tokenizer that it begins with."""
    tokenizer: Tokenizer | None = None
    bundle: Bundle | None = None
    checkpoint: Path | None = None
    """Of the run that goes on."""

    @property
    def step_batches(self) -> int | None:
        """Batches of an optimizer step, where the run has chosen them; None where it is free."""
        return step_batches(self.checkpoint) if self.checkpoint else self.run.loader.step_batches

    def load_weights(self, model: nn.Module) -> None:
        """Puts the weights of the bundle, if there is one, into the model of the run.

        Settings that change no shape may differ, a kernel for one; they are told.

        Raises:
            UserError: where the weights do not fit, with what would make them fit.
        """
        if self.bundle is None:
            return
        theirs, ours = self.bundle.model.state_dict(), model.state_dict()
        differing = " ".join(differences(self.bundle.config, self.run.settings, SHAPING))
        for name in {**ours, **theirs}:
            there, here = (tuple(s[name].shape) if name in s else None for s in (theirs, ours))
            if there != here:
                sides = [f"is {shape}" if shape else "is not" for shape in (there, here)]
                raise UserError(
                    f"init_from={self.bundle.path} does not fit: {name} {sides[0]} there and "
                    f"{sides[1]} here; it was trained with {differing or 'another vocabulary'}"
                )
        model.load_state_dict(theirs)
        if differing:
            print(f"init_from={self.bundle.path} was trained with {differing}", file=sys.stderr)


def start_of(run: TrainingOptions) -> Start:
    """Reads what a run begins with.

    Raises:
        UserError: where it cannot be read, or does not fit the run's settings.
    """
    if run.resume is not None:
        _check_resumed(run)
        checkpoint = newest_whole(Path(run.run_dir) / "checkpoints", tells=rank() == 0)
        return Start(run, Tokenizer.load(Path(run.run_dir) / "tokenizer"), checkpoint=checkpoint)
    if run.init_from is None:
        return Start(run)
    bundle = load_bundle(run.init_from)
    if bundle.config.get("quantize"):
        raise UserError(
            f"init_from={run.init_from} is quantized and cannot be trained on; give the bundle "
            "that it was made from"
        )
    asked = run.typed("tokenizer")
    found = differences(bundle.config, run.settings, ["tokenizer"])
    if asked and found:
        raise UserError(
            f"init_from={run.init_from} brings its own tokenizer; leave {asked[0]} out "
            f"(it has {', '.join(found)})"
        )
    settings = build(part_of(bundle.config, "tokenizer", run.init_from), "tokenizer")
    return Start(replace(run, tokenizer=settings), bundle.tokenizer, bundle)


def _check_resumed(run: TrainingOptions) -> None:
    """Refuses to go on with another model or vocabulary than the run has."""
    before = settings_before(Path(run.run_dir), f"resume={run.resume}")
    # a run that began with a bundle has its tokenizer, whatever the settings say
    nodes = SHAPING if run.init_from else (*SHAPING, "tokenizer")
    differing = [
        word
        for word in differences(before, run.settings, nodes)
        if word.partition("=")[0].rpartition(".")[2] not in _FREE
    ]
    if differing:
        raise UserError(
            f"resume={run.resume} cannot go on with another model or vocabulary: it has "
            f"{', '.join(differing)}"
        )
