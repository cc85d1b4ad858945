"""What is told of an output: texts, pieces, words and where the model looked."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from seqattn.analysis.capture import place_of
from seqattn.analysis.pairs import Pair, observed
from seqattn.analysis.word_alignment import align, aligning
from seqattn.bundle.bundle import TextBundle
from seqattn.extras.report.arrays import packed
from seqattn.extras.serve.interventions import intervened
from seqattn.extras.serve.schemas import Alignment, GenerateRequest, Maps, Output
from seqattn.generation.base import Hypothesis


def different(
    bundle: TextBundle, found: Sequence[Hypothesis], most: int
) -> list[tuple[str, Hypothesis]]:
    """The best hypotheses that read differently, with their texts."""
    best: dict[str, Hypothesis] = {}
    texts = bundle.tokenizer.decode_target([hypothesis.ids for hypothesis in found])
    for text, hypothesis in zip(texts, found, strict=True):
        best.setdefault(text, hypothesis)
    return list(best.items())[:most]


def look_into(
    output: Output,
    bundle: TextBundle,
    source: Sequence[int],
    target: Sequence[int],
    asked: GenerateRequest,
) -> None:
    """Adds alignment and attention to an output, as the model reads it whole.

    Args:
        output: to which they are added.
        bundle: the model.
        source, target: ids, end included.
        asked: which of both, in which form, and what is changed in the model.
    """
    with intervened(bundle.model, asked.intervene):
        maps = observed(bundle.model, Pair(source, target))
    weights = {name: calls[0][0] for name, calls in maps.items() if calls}
    if "attention" in asked.parts:
        form = numbers if asked.attention_as == "lists" else packed
        given = {name: form(one) for name, one in weights.items()}
        output.attention = Maps(maps=given, without=maps.without)  # type: ignore[arg-type]
    if "alignment" in asked.parts:
        output.alignment = _alignment(bundle, source, target, weights)


def _alignment(
    bundle: TextBundle,
    source: Sequence[int],
    target: Sequence[int],
    weights: dict[str, Tensor],
) -> Alignment | None:
    """The words that each word looked at; None where cross-attention has no weights."""
    cross = [one for name, one in weights.items() if place_of(name)[0] == "cross"]
    if not cross:
        return None
    tokenizer = bundle.tokenizer
    words = align(aligning(cross), tokenizer.source_pieces(source), tokenizer.target_pieces(target))
    return Alignment(source=words.source, output=words.target, links=words.links)


def numbers(values: Tensor) -> list[Any]:
    """Nested lists of six decimals."""
    found: list[Any] = values.double().round(decimals=6).tolist()
    return found
