"""From scores of pieces to links of words."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

_BEGINS = "▁"
"""What sentencepiece puts before a word."""
_BREAK = "↵"
"""What stands for a line break."""
_MARKS = ("<pad>", "<s>", "</s>")
_BYTES = re.compile("(?:<0x[0-9A-F]{2}>)+")


class WordAlignment(NamedTuple):
    """The words of both sides, and for each target word the source word that it looked at most."""

    source: list[str]
    target: list[str]
    links: list[int]

    def pharaoh(self) -> str:
        """As alignment tools write it: source-target pairs from 0, in target order."""
        return " ".join(f"{i}-{j}" for j, i in enumerate(self.links))


def aligning(layers: Sequence[Tensor]) -> Tensor:
    """The cross-attention (T, S) to align words by, the mean of its heads.

    That of the last layer but one, where Garg et al. 2019 (arXiv 1909.02074) found the best, of
    six; of the last of less than three.

    Args:
        layers: (H, T, S) of each, first layer first.
    """
    return layers[-2 if len(layers) > 2 else -1].mean(dim=0)


def align(
    weights: Tensor, source_pieces: Sequence[str], target_pieces: Sequence[str]
) -> WordAlignment:
    """Aligns each target word with the source word that gets most of its attention.

    A source word has the weights of its pieces together, a target word the mean of its pieces', as
    Clark et al. 2019 (arXiv 1906.04341, section 4) join pieces, and Ferrando et al. 2022 (ALTI+,
    arXiv 2205.11631) do for alignments. The end mark is no word, and a target word never aligns
    with it, as where Garg et al. 2019 (arXiv 1909.02074) read alignments from attention.

    Args:
        weights: (T, S) of cross-attention, a row for each target piece.
        source_pieces: S.
        target_pieces: T.
    """
    source, target = words_of(source_pieces), words_of(target_pieces)
    if not source:
        return WordAlignment([], [word for word, _ in target], [])
    columns = torch.stack([weights[:, places].sum(dim=1) for _, places in source], dim=1)
    links = [int(columns[places].mean(dim=0).argmax()) for _, places in target]
    return WordAlignment([word for word, _ in source], [word for word, _ in target], links)


def words_of(pieces: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Words with the places of their pieces.

    Marks such as </s>, spaces and line breaks alone are none.
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


def _spelt(found: re.Match[str]) -> str:
    """The characters that pieces such as <0xC3> spell, byte by byte."""
    return bytes.fromhex(re.sub("<0x|>", "", found[0])).decode(errors="replace")
