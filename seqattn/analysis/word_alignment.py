"""Word alignment from attention between pieces."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

_BEGINS = "▁"
"""Word boundary symbol of sentencepiece."""
_BREAK = "↵"
"""Symbol of a line break."""
_MARKS = ("<pad>", "<s>", "</s>")
_BYTES = re.compile("(?:<0x[0-9A-F]{2}>)+")


class WordAlignment(NamedTuple):
    """Words of both sides, and for each target word the source word with the most attention."""

    source: list[str]
    target: list[str]
    links: list[int]

    def pharaoh(self) -> str:
        """Return the alignment in Pharaoh format: source-target pairs from 0, in target order."""
        return " ".join(f"{i}-{j}" for j, i in enumerate(self.links))


def aligning(layers: Sequence[Tensor]) -> Tensor:
    """Return the cross-attention (T, S) to align words by, averaged over heads.

    It is that of the penultimate layer, the best of six in Garg et al. 2019 (arXiv 1909.02074), or
    of the last if there are fewer than three.

    Args:
        layers: (H, T, S) of each layer, in order.
    """
    return layers[-2 if len(layers) > 2 else -1].mean(dim=0)


def align(
    weights: Tensor, source_pieces: Sequence[str], target_pieces: Sequence[str]
) -> WordAlignment:
    """Align each target word to the source word that gets most of its attention.

    Weights are summed over the pieces of a source word and averaged over those of a target word, as
    in Clark et al. 2019 (arXiv 1906.04341, section 4), and for alignments in Ferrando et al. 2022
    (ALTI+, arXiv 2205.11631). The end token is not a word, and no target word aligns to it, as in
    Garg et al. 2019 (arXiv 1909.02074).

    Args:
        weights: (T, S) of cross-attention, one row per target piece.
        source_pieces: S pieces.
        target_pieces: T pieces.
    """
    source, target = words_of(source_pieces), words_of(target_pieces)
    if not source:
        return WordAlignment([], [word for word, _ in target], [])
    columns = torch.stack([weights[:, places].sum(dim=1) for _, places in source], dim=1)
    links = [int(columns[places].mean(dim=0).argmax()) for _, places in target]
    return WordAlignment([word for word, _ in source], [word for word, _ in target], links)


def words_of(pieces: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Return words with the indices of their pieces.

    Special tokens such as </s>, and bare spaces and line breaks, are not words.
    """
    words: list[tuple[str, list[int]]] = []
    begins = True
    for place, piece in enumerate(pieces):
        if piece in _MARKS:
            continue
        text = piece.removeprefix(_BEGINS).strip(_BREAK)
        if begins or piece.startswith((_BEGINS, _BREAK)):
            words.append((text, [place]))
        else:
            word, places = words[-1]
            words[-1] = (word + text, [*places, place])
        begins = piece.endswith(_BREAK)
    return [(_BYTES.sub(_spelt, word), places) for word, places in words if word]


def _spelt(match: re.Match[str]) -> str:
    """Decode the characters spelled by byte pieces such as <0xC3>."""
    return bytes.fromhex(re.sub("<0x|>", "", match[0])).decode(errors="replace")
