"""Choice of the reading of a bundle: by gold links, or by the agreement of two directions."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seqattn.analysis.forced_alignment import aligning_pairs, cross_attentions
from seqattn.analysis.pairs import Pair, observed
from seqattn.analysis.word_alignment import AlignmentReading, align
from seqattn.bundle.bundle import Bundle
from seqattn.data.word_links import WordLinks
from seqattn.errors import UserError
from seqattn.extras.align.gold import alignment_scores
from seqattn.extras.align.symmetrize import Links
from seqattn.screen import progress

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
    model, tokenizer = bundle.model, bundle.tokenizer
    names = cross_attentions(model)
    pairs = [
        Pair(windows[0] if len(windows) == 1 else [], target)
        for windows, target in zip(
            bundle.encode(sources), tokenizer.encode_target(targets), strict=True
        )
    ]
    limits = model.max_source_length, model.max_target_length
    fitting = [
        number
        for number, pair in enumerate(pairs)
        if all(1 < len(ids) <= (most or len(ids)) for ids, most in zip(pair, limits, strict=True))
    ]
    if not fitting:
        raise UserError("the model can read no pair of this split")
    maps = observed(model, pairs[fitting[0]])
    readings = [
        AlignmentReading(shifted, layer, head)
        for layer, attention in enumerate(names)
        for head in (None, *range(maps[attention][0].shape[1]))
        if head is None or maps[attention][0].shape[1] > 1
        for shifted in (False, True)
    ]
    found: list[Candidate] = [Candidate(one, [frozenset()] * len(pairs)) for one in readings]
    with progress(f"reading {name}", "pairs") as tell:
        for start in range(0, len(fitting), _AT_ONCE):
            rows = fitting[start : start + _AT_ONCE]
            weights = aligning_pairs(model, [pairs[row] for row in rows], readings)
            for row, each in zip(rows, weights, strict=True):
                pieces = (
                    tokenizer.source_pieces(pairs[row].source, sources[row]),
                    tokenizer.target_pieces(pairs[row].target, targets[row]),
                )
                for one, candidate in zip(each, found, strict=True):
                    links = align(one, *pieces).links
                    candidate.links[row] = frozenset((i, j) for j, i in enumerate(links))
            tell(start + len(rows), len(fitting))
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


def node_of(reading: AlignmentReading, chosen: str) -> dict[str, Any]:
    """Return a reading as a node of a bundle."""
    return {
        "shifted": reading.shifted,
        "layer": reading.layer,
        "head": reading.head,
        "chosen": chosen,
    }
