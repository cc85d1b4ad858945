"""What is told of an output: texts, pieces, words and where the model looked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from seqattn.analysis.capture import Maps as Captured
from seqattn.analysis.capture import capture
from seqattn.analysis.word_alignment import align, aligning
from seqattn.bundle.bundle import TextBundle
from seqattn.generation.base import Hypothesis
from seqattn.report.arrays import packed
from seqattn.server.interventions import intervened
from seqattn.server.schemas import Alignment, GenerateRequest, Maps, Output
from seqattn.tokens import BOS


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
        source: ids, end included.
        target: ids, end included.
        asked: which of both, in which form, and what is changed in the model.
    """
    device = next(bundle.model.parameters()).device
    ids = (torch.tensor([list(row)], device=device) for row in (source, [BOS, *target[:-1]]))
    with torch.no_grad(), intervened(bundle.model, asked.intervene), capture(bundle.model) as maps:
        bundle.model(*ids)
    weights = {name: torch.cat(calls, dim=2)[0] for name, calls in maps.items() if calls}
    if "attention" in asked.parts:
        form = numbers if asked.attention_as == "lists" else packed
        given = {name: form(one) for name, one in weights.items()}
        output.attention = Maps(maps=given, without=maps.without)  # type: ignore[arg-type]
    if "alignment" in asked.parts:
        output.alignment = _alignment(bundle, source, target, weights, maps)


def _alignment(
    bundle: TextBundle,
    source: Sequence[int],
    target: Sequence[int],
    weights: dict[str, Tensor],
    maps: Captured,
) -> Alignment | None:
    """The words that each word looked at; None where cross-attention has no weights."""
    cross = [one for name, one in weights.items() if re.fullmatch(r"decoder\..*cross_.*", name)]
    if not cross:
        return None
    tokenizer = bundle.tokenizer
    words = align(aligning(cross), tokenizer.source_pieces(source), tokenizer.target_pieces(target))
    return Alignment(source=words.source, output=words.target, links=words.links)


def numbers(values: Tensor) -> list[Any]:
    """Nested lists of six decimals."""
    found: list[Any] = values.double().round(decimals=6).tolist()
    return found
