"""Attention weights of every layer, slot and head for one sentence."""

from collections.abc import Iterator

from torch import Tensor

from seqattn.analysis.capture import Maps, place_of
from seqattn.extras.report.arrays import packed
from seqattn.extras.report.document_types import AttentionDocument

NO_WEIGHTS = "this mechanism has no weights over keys"


def attention_documents(maps: Maps, max_tokens: int, row: int = 0) -> Iterator[AttentionDocument]:
    """Yield a document for each attention of a pass over one sentence.

    Args:
        maps: captured weights, one call per attention.
        max_tokens: include at most the first N tokens per side.
        row: row of the batch.
    """
    for name, calls in maps.items():
        if calls:
            yield _document(name, calls[0][row, :, :max_tokens, :max_tokens], "")
    for name in maps.without:
        yield _document(name, None, NO_WEIGHTS)


def _document(name: str, weights: Tensor | None, reason: str) -> AttentionDocument:
    slot, layer = place_of(name)
    return {
        "name": name,
        "slot": slot,
        "layer": layer or 0,
        "weights": None if weights is None else packed(weights),
        "reason": reason,
    }
