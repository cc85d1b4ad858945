"""Copied and new parts of an output."""

from collections.abc import Sequence

import torch
from torch import Tensor

from seqattn.analysis.word_alignment import words_of
from seqattn.extras.report.document_types import CopyDocument
from seqattn.models.base import Seq2SeqModel


def copied_document(source: Sequence[str], target: Sequence[str]) -> CopyDocument:
    """Find extractive fragments of an output (Grusky et al. 2018, arXiv 1804.11283, section 4).

    Args:
        source, target: pieces of each side, the end mark included.

    Returns:
        The document except `pointer`, see `copy_probabilities`.
    """
    read, output = words_of(source), words_of(target)
    lengths = _fragments([word for word, _ in read], [word for word, _ in output])
    copied = [length > 0 for length in lengths for _ in range(length or 1)]
    copies = {p for is_copy, (_, part) in zip(copied, output, strict=True) if is_copy for p in part}
    return {
        "pieces": [piece in copies for piece in range(len(target))],
        "coverage": sum(lengths) / len(output) if output else 0.0,
        "density": sum(length**2 for length in lengths) / len(output) if output else 0.0,
        "pointer": None,
    }


def _fragments(read: Sequence[str], output: Sequence[str]) -> list[int]:
    """Return lengths of the longest common runs of words, left to right; 0 for a new word."""
    lengths, at = [], 0
    while at < len(output):
        longest = 0
        for start, word in enumerate(read):
            if word == output[at]:
                pairs = zip(read[start:], output[at:])
                end = next((n for n, (a, b) in enumerate(pairs) if a != b), None)
                length = min(len(read) - start, len(output) - at) if end is None else end
                longest = max(longest, length)
        lengths.append(longest)
        at += longest or 1
    return lengths


@torch.no_grad()
def copy_probabilities(model: Seq2SeqModel, source: Tensor, read: Tensor) -> list[float] | None:
    """Return the copy probability of each target token; None if the model cannot copy.

    Args:
        model: in eval mode.
        source: (1, S) ids.
        read: (1, T) target ids, begin mark first.
    """
    if not model.head.needs_weights:
        return None
    state = model.start(model.encode(source), cached=False)
    output = model.features(read, state, need_weights=True)
    mixture = model.head.mixture(output, state.source_tokens)
    return None if mixture is None else (1 - mixture.generate.exp())[0].tolist()
