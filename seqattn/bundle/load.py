"""Loading bundles."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch

from seqattn.bundle.bundle import Bundle
from seqattn.bundle.files import part_of, read_config, read_scores
from seqattn.bundle.weights import load_model
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.ops.int8 import round_weights
from seqattn.settings.assembly import Architecture, Vocabularies
from seqattn.settings.documents import WEIGHTS, Config, bundle_dir
from seqattn.settings.nodes import TARGET, import_path


def load_bundle(
    path: str | Path,
    device: str = "cpu",
    trust: Collection[str] = (),
    ensemble: Sequence[str | Path] = (),
) -> Bundle:
    """Load a bundle after checking its sizes against its files; see `seqattn.load`.

    Raises:
        UserError: if it is missing, damaged or not a bundle, or names an untrusted package;
            or members of an ensemble have different vocabularies, or do not generate text.
    """
    if ensemble:
        ensemble = [ensemble] if isinstance(ensemble, str | Path) else ensemble
        return _joined([load_bundle(one, device, trust) for one in (path, *ensemble)])
    path, trust = bundle_dir(path), [trust] if isinstance(trust, str) else trust
    config = read_config(path, trust)
    for part in ("model", "attention", "position", "loader", "generation"):
        part_of(config, part, path)
    tokenizer = Tokenizer.load(path, trust)
    architecture = Architecture.of(config)
    model: Any = load_model(path / WEIGHTS, architecture, Vocabularies.of(tokenizer))
    if config.get("quantize"):
        round_weights(model)
    try:
        torch.empty(1, device=device).item()  # fails on meta, which holds no values
        model.to(torch.device(device)).eval()
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device={device} is not available; use device=cpu") from error
    kind = bundle_type(config)
    if architecture.model.output != kind.output:
        raise UserError(f"{path}: its task does not support its model; retrain")
    bundle = kind(model, tokenizer, config, read_scores(path), path)
    bundle.check()
    return bundle


def bundle_type(config: Config) -> type[Bundle]:
    """Return the class of a bundle, which its task names."""
    node: Any = config.get("task")
    task: Any = import_path(node[TARGET], "task") if isinstance(node, dict) else None
    kind: Any = import_path(task.bundle) if hasattr(task, "bundle") else Bundle
    return cast(type[Bundle], kind)


def _joined(bundles: Sequence[Bundle]) -> Bundle:
    """Return the first bundle as an ensemble of all."""
    first, *others = (bundle.texts("an ensemble") for bundle in bundles)
    for other in others:
        prints = other.tokenizer.fingerprint, first.tokenizer.fingerprint
        if prints[0] != prints[1]:
            raise UserError(
                f"an ensemble needs a single vocabulary, but those of {other.path} and {first.path}"
                f" differ ({', '.join(prints)}); train both with the same data and tokenizer"
            )
    return replace(first, ensemble=[other.model for other in others])
