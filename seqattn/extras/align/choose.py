"""Choice of the reading of a bundle: by gold links, or by the agreement of two directions."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from seqattn.analysis.forced_alignment import cross_attentions
from seqattn.analysis.pairs import Pair, observed
from seqattn.analysis.word_alignment import AlignmentReading
from seqattn.bundle.bundle import Bundle
from seqattn.data.word_links import WordLinks, linked_words
from seqattn.extras.align.gold import alignment_scores
from seqattn.extras.align.symmetrize import Links
from seqattn.screen import progress
from seqattn.tokens import EOS

_AT_ONCE = 64
"""Pairs whose weights are in memory for all readings."""


class Candidate(NamedTuple):
    """A reading, and its links for each pair."""

    reading: AlignmentReading
    links: list[Links]


def candidates(
    bundle: Bundle, sources: Sequence[str], targets: Sequence[str], name: str
) -> list[Candidate]:
    """Return the links of every reading; pairs that the model cannot read have none."""
    [ids] = bundle.encode(["a"])[0]
    maps = observed(bundle.model, Pair(ids, [EOS]))
    heads = [maps[attention][0].shape[1] for attention in cross_attentions(bundle.model)]
    readings = [
        AlignmentReading(shifted, layer, head)
        for layer, count in enumerate(heads)
        for head in (None, *range(count if count > 1 else 0))
        for shifted in (False, True)
    ]
    found = [Candidate(reading, []) for reading in readings]
    with progress(f"reading {name}", "pairs") as advance:
        for start in range(0, len(sources), _AT_ONCE):
            rows = slice(start, start + _AT_ONCE)
            texts = sources[rows], targets[rows]
            for pair, several in zip(zip(*texts), bundle.align_by(readings, *texts)):
                for candidate, words in zip(found, several, strict=True):
                    candidate.links.append(linked_words(words, *pair) or frozenset())
            advance(min(rows.stop, len(sources)), len(sources))
    return found


def by_gold(found: Sequence[Candidate], gold: Sequence[WordLinks]) -> npt.NDArray[np.float64]:
    """Return the alignment error rate of each candidate."""
    return np.array([alignment_scores(one.links, gold)[0].score for one in found])


def by_agreement(
    found: Sequence[Candidate], others: Sequence[Candidate]
) -> npt.NDArray[np.float64]:
    """Return the agreement (F1, 0 to 100) of each candidate with each of the other direction's."""
    numbers: dict[tuple[int, int, int], int] = {}

    def matrix(some: Sequence[Candidate], turned: bool) -> list[list[int]]:
        return [
            [
                numbers.setdefault((row, *(link[::-1] if turned else link)), len(numbers))
                for row, links in enumerate(one.links)
                for link in links
            ]
            for one in some
        ]

    sides = matrix(found, False), matrix(others, True)
    dense = []
    for side in sides:
        rows = np.zeros((len(side), len(numbers)), np.float32)
        for row, columns in zip(rows, side, strict=True):
            row[columns] = 1
        dense.append(rows)
    both, sizes = dense[0] @ dense[1].T, [rows.sum(1) for rows in dense]
    total = np.maximum(sizes[0][:, None] + sizes[1], 1)
    return np.asarray(200 * both / total, np.float64)


def default_of(bundle: Bundle, found: Sequence[Candidate]) -> int:
    """Return the index of the reading of bundles for which none was chosen."""
    default = AlignmentReading()
    layer = default.layer_of(len(cross_attentions(bundle.model)))
    return [one.reading for one in found].index(replace(default, layer=layer))
