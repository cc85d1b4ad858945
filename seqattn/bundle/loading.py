"""From a bundle's files to a model at work."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from seqattn.bundle.architecture import Architecture, Vocabularies
from seqattn.bundle.bundle import SpanBundle, TextBundle
from seqattn.bundle.documents import WEIGHTS
from seqattn.bundle.files import part_of, read_config, read_scores
from seqattn.bundle.weights import load_model
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.models.span_base import SpanModel
from seqattn.ops.int8 import round_weights
from seqattn.storage import user_path


def load_bundle(
    path: str | Path,
    device: str = "cpu",
    trust: Collection[str] = (),
    ensemble: Sequence[str | Path] = (),
) -> TextBundle | SpanBundle:
    """Loads a bundle, see `seqattn.load`; its sizes are held against its files before use.

    Raises:
        UserError: where it is absent, foreign or damaged, or names a package that is not trusted;
            where those of an ensemble have other vocabularies, or answer by spans.
    """
    if ensemble:
        ensemble = [ensemble] if isinstance(ensemble, str | Path) else ensemble
        return _joined([load_bundle(one, device, trust) for one in (path, *ensemble)])
    path = user_path(path)
    config = read_config(path, trust)
    for part in ("model", "attention", "position", "loader", "generation"):
        part_of(config, part, path)
    tokenizer = Tokenizer.load(path)
    model = load_model(path / WEIGHTS, Architecture.of(config), Vocabularies.of(tokenizer))
    if config.get("quantize"):
        round_weights(model)
    try:
        torch.empty(1, device=device).item()  # meta has no numbers to give
        model.to(torch.device(device)).eval()
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device={device} cannot be used here; use device=cpu") from error
    found = (tokenizer, config, read_scores(path), path)
    if isinstance(model, SpanModel):
        spans = SpanBundle(model, *found)
        spans.answerer()  # what cannot be used is refused here
        return spans
    texts = TextBundle(model, *found)
    texts.generator()
    texts.encode([])
    return texts


def _joined(bundles: Sequence[TextBundle | SpanBundle]) -> TextBundle:
    """The first bundle, whose answers are those of all."""
    texts = [bundle for bundle in bundles if isinstance(bundle, TextBundle)]
    if len(texts) < len(bundles):
        raise UserError("an ensemble is of models that write; leave those that answer by spans out")
    first, *others = texts
    for other in others:
        found, needed = other.tokenizer.fingerprint, first.tokenizer.fingerprint
        if found != needed:
            raise UserError(
                f"an ensemble needs one vocabulary, {other.path} has another than {first.path} "
                f"({found}, {needed}); train both with the same data and tokenizer"
            )
    return replace(first, ensemble=[other.model for other in others])
