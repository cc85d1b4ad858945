"""Initial state of a run: a bundle's weights, pretrained vectors, or a checkpoint."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seqattn.bundle.bundle import Bundle
from seqattn.bundle.load import load_bundle
from seqattn.data.tokenizer import Tokenizer
from seqattn.data.vectors import read_vectors
from seqattn.errors import UserError
from seqattn.roles import Role
from seqattn.screen import say
from seqattn.settings.nodes import TARGET
from seqattn.storage import user_path
from seqattn.training.checkpoint_files import newest_whole, step_batches
from seqattn.training.ranks import rank
from seqattn.training.resume import settings_before
from seqattn.training.setting_roles import differences, leaves
from seqattn.training.settings import TrainingSettings


def resumed_state(run: TrainingSettings) -> tuple[Tokenizer, Path | None, int | None]:
    """Return tokenizer, last checkpoint and batches per step of the run that is resumed.

    Raises:
        UserError: if they cannot be read, or do not fit the settings.
    """
    before = settings_before(Path(run.run_dir), f"resume={run.resume}")
    _check_resumed(run, before)
    checkpoint = newest_whole(Path(run.run_dir) / "checkpoints", tells=rank() == 0)
    regrouped = _grouping(run.settings) != _grouping(before)
    batches = step_batches(checkpoint) if checkpoint else None
    own = type(run.tokenizer).__module__.partition(".")[0]  # the run's settings name it
    tokenizer = Tokenizer.load(Path(run.run_dir) / "tokenizer", [own])
    return tokenizer, checkpoint, run.loader.step_batches if regrouped else batches


def initial_bundle(run: TrainingSettings, path: str) -> Bundle:
    """Load the bundle of `init_from`. Args: path: the bundle's directory.

    Raises:
        UserError: if it cannot be read or trained, or the command changes its tokenizer.
    """
    bundle = load_bundle(path, trust=run.trust)
    if bundle.config.get("quantize"):
        raise UserError(
            f"init_from={path} is quantized and cannot be trained; use the bundle that "
            "it was converted from"
        )
    typed = run.typed("tokenizer")
    names = [name for name in ("tokenizer", "choices") if name in run.settings]
    settings = {name: run.settings[name] for name in names}
    saved, _ = differences(bundle.config, settings, {Role.SHAPE})
    if typed and saved:
        raise UserError(f"init_from={path} has its own tokenizer ({saved}); remove {typed[0]}")
    return bundle


def load_weights(
    run: TrainingSettings, bundle: Bundle | None, model: nn.Module, tokenizer: Tokenizer
) -> None:
    """Load the weights of a bundle, or the vectors of a file, into a new model.

    Settings that change no shape, such as a kernel, may differ and are reported. So may the
    position scheme, whose own parameters then stay random.

    Args:
        run: settings of the run.
        bundle: the bundle of `init_from`, if any.
        model: model of the run.
        tokenizer: its tokenizer.

    Raises:
        UserError: if they do not fit; the message says what would.
    """
    if run.embeddings and not run.resume:
        path = user_path(run.embeddings)
        _tell(*fill_embeddings(model, tokenizer, path))
    if bundle is None:
        return
    settings = {name: node for name, node in run.settings.items() if name != "tokenizer"}
    theirs, ours = differences(bundle.config, settings, {Role.SHAPE})
    differing = f"{theirs}, but this run has {ours}" if theirs else ""
    saved, own = bundle.model.state_dict(), model.state_dict()
    for name in {**own, **saved}:
        there, here = (tuple(s[name].shape) if name in s else "missing" for s in (saved, own))
        if ".position." in name and "missing" in (there, here):
            continue
        if there != here:
            raise UserError(
                f"init_from={bundle.path} does not fit: {name} is {there} in the bundle "
                f"and {here} in the model; the bundle was trained with "
                f"{differing or 'a different vocabulary'}"
            )
    model.load_state_dict({**own, **{name: saved[name] for name in saved if name in own}})
    if differing:
        is_random = own.keys() - saved.keys()
        more = "; tables of positions begin at random" if is_random else ""
        _tell(f"init_from={bundle.path} was trained with {differing}{more}")


def _tell(*lines: str) -> None:
    if rank() == 0:
        say(*lines)


def _grouping(settings: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the settings that determine the number of batches per step."""
    return settings["loader"].get("step_batches"), settings["trainer"].get(
        "accumulate_grad_batches"
    )


def _check_resumed(run: TrainingSettings, before: Mapping[str, Any]) -> None:
    """Raise UserError if model, vocabulary or kind of optimizer differ from the run's."""
    settings = dict(run.settings)
    if run.init_from:  # it uses that bundle's tokenizer
        del settings["tokenizer"]
    theirs, ours = differences(before, settings, {Role.SHAPE})
    if theirs:
        raise UserError(
            f"resume={run.resume} cannot change the model or vocabulary: the run has {theirs}, "
            f"but this command has {ours}"
        )
    kinds = [
        [leaf.value for leaf in leaves(node, "optimizer") if leaf.key.endswith(TARGET)]
        for node in (before.get("optimizer"), settings.get("optimizer"))
    ]
    if kinds[0] != kinds[1]:
        settings = {name: settings[name] for name in ("optimizer", "choices") if name in settings}
        theirs, ours = differences(before, settings, {Role.STEP})
        raise UserError(
            f"resume={run.resume} cannot change the optimizer: the run has {theirs}, but this "
            f"command has {ours}; start a new run from its weights with "
            f"init_from={run.run_dir}/model"
        )


def fill_embeddings(model: Any, tokenizer: Tokenizer, path: Path) -> list[str]:
    """Copy the vectors of a text file into the embedding tables of a model.

    They are scaled together to the mean square of the random rows, 1 / D, which a table shared
    with the output needs. Pieces that are not in the file keep their row.

    Args:
        model: a new model.
        tokenizer: tokenizer of the model.
        path: path of the file; see `read_vectors`.

    Returns:
        For each table, a line with the number of matched rows.

    Raises:
        UserError: if the file has none of the pieces, or its vectors do not have the model's width.
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
            raise UserError(f"embeddings={path} contains none of the {size:,} {side} pieces")
        if vectors.shape[1] != table.embedding_dim:
            raise UserError(
                f"embeddings={path} has {vectors.shape[1]} dimensions, but the {side} embeddings "
                f"have {table.embedding_dim}; set model.dim={vectors.shape[1]}"
            )
        values = torch.from_numpy(vectors)
        with torch.no_grad():
            table.weight[rows] = values * (table.embedding_dim * values.square().mean()).rsqrt()
        lines.append(f"initialized {len(rows):,} of {size:,} {side} embeddings from {path}")
    return lines
