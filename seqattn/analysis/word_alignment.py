"""Word alignment from attention between pieces."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from annotated_types import Ge, Le
from torch import Tensor

from seqattn.errors import UserError

Place = Annotated[int, Ge(0), Le(1_000)]
BEGINS = "▁"
"""Word boundary symbol of sentencepiece."""
BREAK = "↵"
"""Symbol of a line break."""
WordsOf = Callable[[Sequence[str]], list[tuple[str, list[int]]]]
"""Function that finds words in pieces, such as `words_of`."""
MARKS = ("<pad>", "<s>", "</s>")
_BYTES = re.compile("(?:<0x[0-9A-F]{2}>)+")


class WordAlignment(NamedTuple):
    """Words of both sides, and for each target word the source word with the most attention.

    There are no links if the source has no words, or is not read as a whole.
    """

    source: list[str]
    target: list[str]
    links: list[int]

    @classmethod
    def joined(cls, parts: Sequence["WordAlignment"]) -> "WordAlignment":
        """Return the alignment of consecutive parts of a text as one.

        Words of a part without links are linked to those of the same relative position; if it has
        none on the other side, the result has no links.
        """
        source, target, links = list[str](), list[str](), list[int]()
        for part in parts:
            part_links, words = part.links, (len(part.source), len(part.target))
            if len(part_links) != words[1] and words[0]:
                part_links = [number * words[0] // words[1] for number in range(words[1])]
            links += [len(source) + link for link in part_links]
            source, target = source + part.source, target + part.target
        return cls(source, target, links if len(links) == len(target) else [])

    @classmethod
    def of_copy(cls, text: str) -> "WordAlignment":
        """Return the alignment of a text and its copy."""
        words = text.split()
        return cls(words, words, [*range(len(words))])

    def pharaoh(self) -> str:
        """Return the alignment in Pharaoh format: source-target pairs from 0, in target order."""
        return pharaoh([self])


def pharaoh(parts: Iterable[WordAlignment]) -> str:
    """Return the alignment of consecutive parts of a text as one, in Pharaoh format."""
    links, sources, targets = [], 0, 0
    for part in parts:
        links += [f"{sources + i}-{targets + j}" for j, i in enumerate(part.links)]
        sources, targets = sources + len(part.source), targets + len(part.target)
    return " ".join(links)


@dataclass(frozen=True)
class AlignmentReading:
    """Cross-attention to align words by.

    Args:
        shifted: read a word at the step where it is the decoder's input, one after the step that
            predicts it (Chen et al. 2020, arXiv 2004.14837).
        layer: layer of the decoder, from 0; None for the penultimate, the best of six in Garg et
            al. 2019 (arXiv 1909.02074), or for the last if there are fewer than three.
        head: head of this layer, from 0; None for their mean.
        chosen: how it was chosen, in words.
    """

    shifted: bool = False
    layer: Place | None = None
    head: Place | None = None
    chosen: str = ""

    def __str__(self) -> str:
        layer = "the default layer" if self.layer is None else f"layer {self.layer}"
        head = "mean over heads" if self.head is None else f"head {self.head}"
        return f"{'shifted' if self.shifted else 'plain'}, {layer}, {head}"

    def layer_of(self, layers: int) -> int:
        """Return the layer to read of this many; raise UserError if there is no such layer."""
        default = layers - (2 if layers > 2 else 1)
        return default if self.layer is None else _below(layers, self.layer, "layer")

    def rows(self, weights: Tensor) -> Tensor:
        """Return the weights (T, S) to align by, of those of a layer (H, T, S).

        Shifted, the row of the last token is its own: no step reads it.
        """
        if self.head is None:
            rows = weights.mean(dim=0)
        else:
            rows = weights[_below(len(weights), self.head, "head")]
        return torch.cat((rows[1:], rows[-1:])) if self.shifted else rows


def _below(count: int, number: int, name: str) -> int:
    if number >= count:
        raise UserError(f"alignment.{name} must be below {count}, got {number}")
    return number


PLAIN = AlignmentReading()
"""The reading of bundles for which none was chosen."""


def aligning(layers: Sequence[Tensor], reading: AlignmentReading = PLAIN) -> Tensor:
    """Return the cross-attention (T, S) to align words by. Args: layers: (H, T, S) of each."""
    return reading.rows(layers[reading.layer_of(len(layers))])


def align(
    weights: Tensor,
    source_pieces: Sequence[str],
    target_pieces: Sequence[str],
    words: WordsOf | None = None,
) -> WordAlignment:
    """Align each target word to the source word that gets most of its attention.

    Weights are summed over the pieces of a source word and averaged over those of a target word, as
    in Clark et al. 2019 (arXiv 1906.04341, section 4), and for alignments in Ferrando et al. 2022
    (ALTI+, arXiv 2205.11631). The end token is not a word, and no target word aligns to it, as in
    Garg et al. 2019 (arXiv 1909.02074). A target word without weight on any source word, as after
    the end of monotonic attention, aligns as the one before it; the first, to the last source word.

    Args:
        weights: (T, S) of cross-attention, one row per target piece.
        source_pieces: S pieces.
        target_pieces: T pieces.
        words: None for `words_of`.
    """
    source, target = map(words or words_of, (source_pieces, target_pieces))
    links: list[int] = []
    if source and target:
        pieces = [places for _, places in target]
        columns = _added(weights.T, [places for _, places in source])  # (T, S) -> (words, T)
        means = _added(columns.T, pieces) / torch.tensor([[len(places)] for places in pieces])
        last = len(source) - 1
        for most, some in zip(means.argmax(dim=1).tolist(), means.any(dim=1).tolist()):
            last = most if some else last
            links.append(last)
    return WordAlignment([word for word, _ in source], [word for word, _ in target], links)


def _added(rows: Tensor, words: Sequence[Sequence[int]]) -> Tensor:
    """Return the sum of the rows of each word's pieces."""
    numbers = [number for number, places in enumerate(words) for _ in places]
    kept = rows[[place for places in words for place in places]]
    return rows.new_zeros(len(words), rows.shape[1]).index_add_(0, torch.tensor(numbers), kept)


def words_of(pieces: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Return words with the indices of their pieces.

    Special tokens such as </s>, and bare spaces and line breaks, are not words.
    """
    words: list[tuple[str, list[int]]] = []
    begins = True
    for place, piece in enumerate(pieces):
        if piece in MARKS:
            continue
        text = piece.removeprefix(BEGINS).strip(BREAK)
        if begins or piece.startswith((BEGINS, BREAK)):
            words.append((text, [place]))
        else:
            word, places = words[-1]
            words[-1] = (word + text, [*places, place])
        begins = piece.endswith(BREAK)
    return [(_BYTES.sub(_spelt, word), places) for word, places in words if word]


def _spelt(match: re.Match[str]) -> str:
    """Decode the characters spelled by byte pieces such as <0xC3>."""
    return bytes.fromhex(re.sub("<0x|>", "", match[0])).decode(errors="replace")
