"""Files of a bundle: written atomically, read without running code from them."""

import json
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from safetensors import SafetensorError

from seqattn.bundle.card import model_card
from seqattn.errors import UserError
from seqattn.inputs import read_bytes, read_json
from seqattn.settings.documents import CONFIG, FORMAT, HUB, SCORES, WEIGHTS, Config, dump, read
from seqattn.settings.nodes import Node
from seqattn.storage import is_file, new_directory, real_path, user_path, write_whole

if TYPE_CHECKING:  # configurations are read, and refused, without PyTorch
    from torch import nn

    from seqattn.data.tokenizer import Tokenizer

CARD = "README.md"
_LARGEST, _DEEPEST = 1 << 20, 8


def write_bundle(
    path: Path,
    config: Mapping[str, Node],
    model: "nn.Module",
    tokenizer: "Tokenizer",
    scores: Mapping[str, Any],
    cost: Mapping[str, str] | None = None,
    beside: Callable[[Path], object] = lambda directory: None,
) -> None:
    """Write a bundle atomically, in place of an existing one.

    Args:
        config: nodes of the run, by name; those in `documents.BUNDLE_NODES` are written.
        scores: scores of the model, with signatures.
        cost: time and steps of training, by name, for the model card; None if unknown.
        beside: writes further files into the directory before it is renamed into place.

    Raises:
        UserError: if it cannot be written, `path` holds something else, or weights are not finite.
    """
    from seqattn.bundle.weights import save_weights

    document = dump(config)
    sizes = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "vocabulary entries": tokenizer.target_size,
    }
    card = model_card(yaml.safe_load(document), sizes, scores, cost or {})
    _check_finite(model)
    path = real_path(path)
    is_empty = path.is_dir() and not any(path.iterdir())
    if path.exists() and not is_empty and not (path / CONFIG).is_file():
        raise UserError(f"{path} already exists and is not a bundle; choose another directory")
    with new_directory(path, CONFIG) as new:
        (new / CONFIG).write_text(document, encoding="utf-8")
        (new / CARD).write_text(card, encoding="utf-8")
        (new / SCORES).write_text(json.dumps(scores, indent=2) + "\n", encoding="utf-8")
        try:
            save_weights(model, new / WEIGHTS, FORMAT, bool(config.get("quantize")))
        except SafetensorError as error:
            raise UserError(f"cannot write {path}: {error}") from error
        (new / WEIGHTS).chmod((new / CONFIG).stat().st_mode)  # respects the user's umask
        tokenizer.save(new)
        beside(new)


def store(path: Path, config: Mapping[str, Node], **nodes: Node) -> None:
    """Replace nodes of the bundle at `path`, such as its `generation`.

    Raises:
        UserError: if it cannot be written.
    """
    write_whole(path / CONFIG, dump({**config, **nodes}).encode())


def _check_finite(model: "nn.Module") -> None:
    for name, tensor in model.state_dict().items():
        if not tensor.isfinite().all():
            raise UserError(
                f"training has diverged: {name} has weights that are not finite; lower "
                "optimizer.lr, or set trainer.gradient_clip_val"
            )


def read_config(path: Path, trust: Collection[str] = ()) -> Config:
    """Return a bundle's configuration as nodes, without importing what it names.

    Args:
        trust: third-party packages whose classes it may name.

    Raises:
        UserError: if `path` is absent or not a bundle, or names a class that is not allowed.
    """
    if not path.is_dir():
        if (path.parent / "checkpoints").is_dir():
            unfinished = f"training of {path.parent} has not finished"
            resume = f"seqattn train resume={path.parent}"
            raise UserError(f"bundle {path} does not exist, as {unfinished}; run {resume}")
        named = re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", str(path)) and not path.parent.exists()
        hub = f"; for a model on the hub give {HUB}{path}" if named else ""
        raise UserError(f"bundle {path} does not exist; training writes one to RUN/model{hub}")
    file = path / CONFIG
    if not is_file(file):
        raise UserError(f"{path} is not a bundle: {CONFIG} is missing; use RUN/model")
    try:
        return read(read_bytes(file, _LARGEST).decode(), trust)
    except UnicodeDecodeError as error:
        raise UserError(f"cannot read {file}: the bundle is damaged; retrain") from error
    except UserError as error:
        raise error if str(file) in str(error) else UserError(f"{file}: {error}") from error


def read_scores(path: Path) -> dict[str, Any]:
    """Return a bundle's scores, empty without a file of scores.

    Raises:
        UserError: if the file is not a JSON object of numbers and texts.
    """
    file = path / SCORES
    if not is_file(file):
        return {}
    scores = read_json(file, "a bundle's scores", largest=_LARGEST)
    if not isinstance(scores, dict) or _depth(scores) > _DEEPEST:
        raise UserError(f"{file} must contain a JSON object of numbers and strings; retrain")
    return scores


def part_of(config: Mapping[str, Node], name: str, path: str | Path) -> Node:
    """Return a part of a bundle's configuration; a dotted name gives a nested part.

    Raises:
        UserError: if there is none.
    """
    value: Node = config
    for key in name.split("."):
        if not isinstance(value, dict) or value.get(key) is None:
            file = user_path(path) / CONFIG
            raise UserError(f"{name} is missing from {file}: the bundle is damaged; retrain")
        value = value[key]
    return value


def _depth(value: Any) -> int:
    """Return how deeply dicts and lists are nested."""
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(_depth, value.values() if isinstance(value, dict) else value), default=0)
