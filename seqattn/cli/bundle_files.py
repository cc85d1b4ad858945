"""The files of a bundle: written whole or not at all, read without running anything of theirs."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from hydra.utils import get_object
from safetensors.torch import save_model
from torch import nn

from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError

FORMAT = "seqattn bundle 1"
WEIGHTS, SCORES = "model.safetensors", "scores.json"
_CONFIG = "config.yaml"
_NEVER_BUILT = ("trainer", "logger")


def write_bundle(
    path: Path,
    config: Mapping[str, Any],
    model: nn.Module,
    tokenizer: Tokenizer,
    scores: Mapping[str, Any],
) -> None:
    """Writes a bundle whole, or not at all; one that stands there is replaced.

    Args:
        path: the bundle's directory.
        config: resolved, plain values.
        model: its weights are written without pickle.
        tokenizer: its vocabularies.
        scores: what is known of the model's quality, with signatures.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    document = {"format": FORMAT, **config}
    (temporary / _CONFIG).write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    (temporary / SCORES).write_text(json.dumps(scores, indent=2) + "\n", encoding="utf-8")
    save_model(model, str(temporary / WEIGHTS), metadata={"format": FORMAT})
    tokenizer.save(temporary)
    for file in [*temporary.iterdir(), temporary]:
        _flush(file)
    old = path.with_name(f".{path.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if path.exists():
        path.rename(old)
    temporary.rename(path)
    shutil.rmtree(old, ignore_errors=True)
    _flush(path.parent)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_config(path: Path) -> dict[str, Any]:
    """The configuration that a bundle carries.

    Raises:
        UserError: where `path` is absent or no bundle.
    """
    if not path.is_dir():
        raise UserError(f"there is no bundle at {path}; training writes one to RUN/model")
    file = path / _CONFIG
    if not file.is_file():
        raise UserError(f"{path} is no bundle, {_CONFIG} is not in it; give RUN/model")
    try:
        config = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{file} cannot be read; the bundle is damaged: train again") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        found = config.get("format") if isinstance(config, dict) else None
        raise UserError(f"{path} is not of the format {FORMAT!r}, it says {found!r}")
    for key, node in config.items():
        if key not in _NEVER_BUILT:
            _refuse_foreign(node, file)
    return config


def _refuse_foreign(node: Any, file: Path) -> None:
    """Refuses a target outside this package: a bundle is data, and runs nobody else's code."""
    if isinstance(node, list):
        for part in node:
            _refuse_foreign(part, file)
    if not isinstance(node, dict):
        return
    target = str(node.get("_target_", "seqattn.errors.UserError"))
    own = target.startswith("seqattn.")
    try:
        own = own and str(getattr(get_object(target), "__module__", "")).startswith("seqattn.")
    except (ImportError, ValueError, AttributeError):
        own = False
    if not own:
        raise UserError(
            f"{file} names {target}, which is not of seqattn: this bundle is foreign or of "
            "another version"
        )
    for part in node.values():
        _refuse_foreign(part, file)


def part_of(config: Mapping[str, Any], name: str, path: str | Path) -> Any:
    """A part of a bundle's configuration; a dot leads into nested ones.

    Raises:
        UserError: where it is not there.
    """
    value: Any = config
    for key in name.split("."):
        if not isinstance(value, dict) or key not in value:
            file = Path(path).expanduser() / _CONFIG
            raise UserError(f"{file} lacks {name}; the bundle is damaged: train again")
        value = value[key]
    return value
