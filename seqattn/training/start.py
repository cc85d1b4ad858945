"""Initial state of a run: a bundle's weights, pretrained vectors, or a checkpoint."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from seqattn.bundle.bundle import Bundle
from seqattn.bundle.files import part_of
from seqattn.bundle.loading import load_bundle
from seqattn.data.tokenizer import Tokenizer
from seqattn.data.vectors import read_vectors
from seqattn.errors import UserError
from seqattn.roles import Role
from seqattn.storage import user_path
from seqattn.training.checkpoint_files import newest_whole, step_batches
from seqattn.training.options import TrainingOptions
from seqattn.training.resume import settings_before
from seqattn.training.run_directory import rank
from seqattn.training.setting_roles import differences


class Start(NamedTuple):
    """Initial state of a run; random without a bundle or a tokenizer."""

    run: TrainingOptions
    """Settings of the run, with those of its initial tokenizer."""
    tokenizer: Tokenizer | None = None
    bundle: Bundle | None = None
    checkpoint: Path | None = None
    """Checkpoint of a resumed run."""
    step_batches: int | None = None
    """Batches of an optimizer step, if the run has fixed them; else None."""

    def load_weights(self, model: nn.Module, tokenizer: Tokenizer) -> None:
        """Load the weights of a bundle, or the vectors of a file, into a new model.

        Settings that change no shape, such as a kernel, may differ and are reported.

        Args:
            model: model of the run.
            tokenizer: its tokenizer.

        Raises:
            UserError: they do not fit; the message says what would.
        """
        if self.run.embeddings and not self.run.resume:
            path = user_path(self.run.embeddings)
            _tell(*fill_embeddings(model, tokenizer, path))
        if self.bundle is None:
            return
        ours = {name: node for name, node in self.run.settings.items() if name != "tokenizer"}
        differing = " ".join(differences(self.bundle.config, ours, {Role.SHAPE}))
        theirs, own = self.bundle.model.state_dict(), model.state_dict()
        for name in {**own, **theirs}:
            there, here = (tuple(s[name].shape) if name in s else None for s in (theirs, own))
            if there != here:
                sides = [f"is {shape}" if shape else "is not" for shape in (there, here)]
                raise UserError(
                    f"init_from={self.bundle.path} does not fit: {name} {sides[0]} there and "
                    f"{sides[1]} here; it was trained with {differing or 'another vocabulary'}"
                )
        model.load_state_dict(theirs)
        if differing:
            _tell(f"init_from={self.bundle.path} was trained with {differing}")


def _tell(*lines: str) -> None:
    if rank() == 0:
        print(*lines, sep="\n", file=sys.stderr)


def start_of(run: TrainingOptions) -> Start:
    """Read the initial state of a run.

    Raises:
        UserError: it cannot be read, or does not fit the run's settings.
    """
    if run.resume is not None:
        before = settings_before(Path(run.run_dir), f"resume={run.resume}")
        _check_resumed(run, before)
        checkpoint = newest_whole(Path(run.run_dir) / "checkpoints", tells=rank() == 0)
        regrouped = _grouping(run.settings) != _grouping(before)
        before_it = step_batches(checkpoint) if checkpoint else None
        batches = run.loader.step_batches if regrouped else before_it
        tokenizer = Tokenizer.load(Path(run.run_dir) / "tokenizer")
        return Start(run, tokenizer, None, checkpoint, batches)
    if run.init_from is None:
        return Start(run, step_batches=run.loader.step_batches)
    bundle = load_bundle(run.init_from, trust=run.trust)
    if bundle.config.get("quantize"):
        raise UserError(
            f"init_from={run.init_from} is quantized and cannot be trained on; give the bundle "
            "that it was made from"
        )
    asked = run.typed("tokenizer")
    ours = {"tokenizer": run.settings["tokenizer"]}
    found = differences(bundle.config, ours, {Role.SHAPE})
    if asked and found:
        raise UserError(
            f"init_from={run.init_from} brings its own tokenizer; leave {asked[0]} out "
            f"(it has {', '.join(found)})"
        )
    theirs = part_of(bundle.config, "tokenizer", run.init_from)
    run = run.changed(tokenizer=theirs)
    return Start(run, bundle.tokenizer, bundle, step_batches=run.loader.step_batches)


def _grouping(settings: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the settings that determine the number of batches per step."""
    return settings["loader"].get("step_batches"), settings["trainer"].get(
        "accumulate_grad_batches"
    )


def _check_resumed(run: TrainingOptions, before: Mapping[str, Any]) -> None:
    """Raise UserError if model, vocabulary or kind of optimizer differ from the run's."""
    settings = dict(run.settings)
    if run.init_from:  # it has that bundle's tokenizer
        del settings["tokenizer"]
    differing = differences(before, settings, {Role.SHAPE})
    if differing:
        raise UserError(
            f"resume={run.resume} cannot go on with another model or vocabulary: it has "
            f"{', '.join(differing)}"
        )
    steps = differences(before, settings, {Role.STEP})
    other = next((word for word in steps if word.startswith("optimizer=")), None)
    if other:
        raise UserError(
            f"resume={run.resume} cannot go on with another optimizer: it has {other}; begin a "
            f"new run with its weights by init_from={run.run_dir}/model"
        )


def fill_embeddings(model: Any, tokenizer: Tokenizer, path: Path) -> list[str]:
    """Copy the vectors of a text file into the embedding tables of a model.

    They are scaled together to the mean square of the random rows, 1 / D, which a table shared
    with the output needs. Pieces that are not in the file keep their row.

    Args:
        model: a new model.
        tokenizer: of the model.
        path: of the file, see `read_vectors`.

    Returns:
        For each table, a line with the number of matched rows.

    Raises:
        UserError: the file has none of the pieces, or its vectors do not have the model's width.
    """
    source = getattr(model, "source_embedding", None) or model.embedding
    target = getattr(model, "target_embedding", source)
    tables = {"source": (source.table, tokenizer.source_size, tokenizer.source_pieces)}
    if target.table is not source.table:
        tables["target"] = (target.table, tokenizer.target_size, tokenizer.target_pieces)
    lines = []
    for side, (table, size, pieces) in tables.items():
        rows, vectors = read_vectors(path, pieces(range(size)))
        if not rows:
            raise UserError(f"embeddings={path} has none of the {size:,} {side} pieces")
        if vectors.shape[1] != table.embedding_dim:
            raise UserError(
                f"embeddings={path} has vectors of {vectors.shape[1]} numbers, the {side} "
                f"embeddings have {table.embedding_dim}; set model.dim={vectors.shape[1]}"
            )
        values = torch.from_numpy(vectors)
        with torch.no_grad():
            table.weight[rows] = values * (table.embedding_dim * values.square().mean()).rsqrt()
        lines.append(f"{path} gave {len(rows):,} of {size:,} {side} pieces their vectors")
    return lines
