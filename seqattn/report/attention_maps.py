"""The weights of every layer, slot and head of one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch
from torch import Tensor

from seqattn.analysis.capture import Maps
from seqattn.report.arrays import packed
from seqattn.report.document_types import AttentionDocument

NO_WEIGHTS = "this mechanism mixes without weights over keys"


def attention_documents(maps: Maps, most: int, row: int = 0) -> Iterator[AttentionDocument]:
    """A document for each attention of a pass over one sentence.

    Args:
        maps: as captured.
        most: tokens of a side that are kept, the first ones.
        row: of the batch.
    """
    for name, calls in maps.items():
        if calls:
            weights = torch.cat(calls, dim=2)  # edited, a recurrent decoder goes step by step
            yield _document(name, weights[row, :, :most, :most], "")
    for name in maps.without:
        yield _document(name, None, NO_WEIGHTS)


def _document(name: str, weights: Tensor | None, reason: str) -> AttentionDocument:
    layer = re.search(r"layers\.(\d+)\.", name)
    return {
        "name": name,
        "slot": _slot(name),
        "layer": int(layer[1]) if layer else 0,
        "weights": None if weights is None else packed(weights),
        "reason": reason,
    }


def _slot(name: str) -> str:
    """Where an attention stands: cross, encoder, decoder, or question."""
    for slot in ("cross", "question"):
        if name.endswith(f"{slot}_attention"):
            return slot
    return name.partition(".")[0]
