"""A bundle: the directory that holds all that generating, evaluating and analysing need."""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from hydra.utils import get_object
from safetensors import SafetensorError
from safetensors.torch import load_model, save_model

from seqattn.cli.build import build_generator, build_model
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.generation import Generator
from seqattn.models.base import Seq2SeqModel

FORMAT = "seqattn bundle 1"
_NEVER_BUILT = ("trainer", "logger")
_CONFIG, _WEIGHTS, _SCORES = "config.yaml", "model.safetensors", "scores.json"


@dataclass
class Bundle:
    """A trained model with its tokenizer and configuration.

    Args:
        model: in eval mode.
        tokenizer: its vocabularies.
        config: the resolved configuration of its training.
        scores: what it scored then.
        path: where it was loaded from.
    """

    model: Seq2SeqModel
    tokenizer: Tokenizer
    config: dict[str, Any]
    scores: dict[str, Any]
    path: Path

    def generate(
        self, texts: Sequence[str], generation: Mapping[str, Any] | None = None
    ) -> list[str]:
        """The best output for each text; an empty text gives an empty one.

        Args:
            texts: sources, as written.
            generation: a node such as `conf/generation/beam.yaml`; None for the bundle's own.
        """
        sources = self.encode(texts)
        found = self.generator(generation).generate(sources)
        return self.tokenizer.decode_target([hypotheses[0].ids for hypotheses in found])

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Source ids of each text; none for a text of nothing but white space."""
        ids = self.tokenizer.encode_source(texts)
        return [row if text.strip() else [] for row, text in zip(ids, texts, strict=True)]

    def generator(self, generation: Mapping[str, Any] | None = None) -> Generator:
        """The search of a generation node, or of the bundle's own, over this model."""
        return build_generator(dict(generation or self.config["generation"]), self.model)


def write_bundle(
    path: Path,
    config: Mapping[str, Any],
    model: Seq2SeqModel,
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
    (temporary / _SCORES).write_text(json.dumps(scores, indent=2) + "\n", encoding="utf-8")
    save_model(model, str(temporary / _WEIGHTS), metadata={"format": FORMAT})
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


def load_bundle(path: str | Path, device: str = "cpu") -> Bundle:
    """Loads a bundle.

    Raises:
        UserError: where it is absent, foreign or truncated.
    """
    path = Path(path).expanduser()
    config = read_config(path)
    tokenizer = Tokenizer.load(path)
    for part in ("model", "attention", "position", "generation"):
        part_of(config, part, path)
    model = build_model(config, tokenizer)
    weights = path / _WEIGHTS
    try:
        load_model(model, str(weights))
    except FileNotFoundError as error:
        raise UserError(f"{weights} is not there; the bundle is incomplete: train again") from error
    except (SafetensorError, RuntimeError, OSError) as error:
        reason = str(error).split("\n")[0]
        raise UserError(
            f"{weights} cannot be read ({reason}); copy it anew or train again"
        ) from error
    try:
        model.to(torch.device(device)).eval()
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device={device} cannot be used here; use device=cpu") from error
    scores = path / _SCORES
    known = json.loads(scores.read_text(encoding="utf-8")) if scores.is_file() else {}
    return Bundle(model, tokenizer, config, known, path)
