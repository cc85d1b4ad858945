"""What an output copies from its source, and what it says anew."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from seqattn.models.base import Seq2SeqModel
from seqattn.report.document_types import CopyDocument

_BEGINS = "▁"


def copied_document(
    source: Sequence[str], target: Sequence[str], pointer: list[float] | None
) -> CopyDocument:
    """Extractive fragments of an output (Grusky et al. 2018, arXiv 1804.11283, section 4).

    Args:
        source, target: pieces of each side, the end included.
        pointer: as `copy_probabilities`.
    """
    read, said = words_of(source[:-1]), words_of(target[:-1])
    lengths = _fragments(read, said)
    copied = [length > 0 for length in lengths for _ in range(length or 1)]
    places = word_numbers(target[:-1])
    return {
        "pieces": [*(copied[place] for place in places), False],
        "coverage": sum(lengths) / len(said) if said else 0.0,
        "density": sum(length**2 for length in lengths) / len(said) if said else 0.0,
        "pointer": pointer,
    }


def word_numbers(pieces: Sequence[str]) -> list[int]:
    """The word from 0 that each piece belongs to."""
    begun = accumulate(piece.startswith(_BEGINS) or not n for n, piece in enumerate(pieces))
    return [count - 1 for count in begun]


def words_of(pieces: Sequence[str]) -> list[str]:
    """The words that pieces make."""
    words: list[str] = []
    for number, piece in zip(word_numbers(pieces), pieces, strict=True):
        text = piece.removeprefix(_BEGINS)
        if number == len(words):
            words.append(text)
        else:
            words[number] += text
    return words


def _fragments(read: Sequence[str], said: Sequence[str]) -> list[int]:
    """The longest runs of words that stand in both, from left to right; 0 for a word of none."""
    lengths, at = [], 0
    while at < len(said):
        longest = 0
        for place, word in enumerate(read):
            if word == said[at]:
                pairs = zip(read[place:], said[at:])
                same = next((n for n, (a, b) in enumerate(pairs) if a != b), None)
                length = min(len(read) - place, len(said) - at) if same is None else same
                longest = max(longest, length)
        lengths.append(longest)
        at += longest or 1
    return lengths


@torch.no_grad()
def copy_probabilities(model: Seq2SeqModel, source: Tensor, read: Tensor) -> list[float] | None:
    """For each target token the probability that the model copies it; None where it cannot.

    Args:
        model: in eval mode.
        source: (1, S) ids.
        read: (1, T) target ids, begin first.
    """
    if not model.head.needs_weights:
        return None
    state = model.start(model.encode(source), cached=False)
    output = model.features(read, state, need_weights=True)
    mixture = model.head.mixture(output, state.source_tokens)
    return None if mixture is None else (1 - mixture.generate.exp())[0].tolist()
