"""Pretrained vectors of words or subwords, from a text file."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from seqattn.data.text_files import read_lines
from seqattn.errors import UserError
from seqattn.inputs import check_there

_WORD = "▁"
"""Prefix of a sentencepiece piece that begins a word."""


def read_vectors(path: Path, pieces: Sequence[str]) -> tuple[list[int], npt.NDArray[np.float32]]:
    """Read the vectors of pieces from a file in the text format of word2vec and fastText.

    Each line is a name and its D numbers, separated by spaces; a first line of two counts is
    skipped, and so are names with spaces, as in some GloVe files. A piece is matched by its own
    name ("▁house", as in BPEmb), else, if it begins a word, by the word ("house"). The first
    occurrence of a name counts.

    Args:
        path: may end in ".gz".

    Returns:
        N indices of pieces, and an array (N, D) of their vectors.

    Raises:
        UserError: if a line does not have D numbers; the message names it.
    """
    by_piece = {piece: number for number, piece in enumerate(pieces)}
    by_word = {
        piece.removeprefix(_WORD): number
        for number, piece in enumerate(pieces)
        if piece.startswith(_WORD) and piece != _WORD
    }
    check_there(path, "a file of vectors")
    matches: dict[int, tuple[bool, npt.NDArray[np.float32]]] = {}
    width = 0
    for number, line in enumerate(read_lines(path), 1):
        name, _, tail = line.partition(" ")
        candidates = {by_word.get(name): False, by_piece.get(name): True}
        values = tail.split() if number == 1 or candidates.keys() != {None} else []
        if not values or (number == 1 and len(values) == 1):
            continue
        width = width or _count(values)
        vector = _numbers(values)
        if width and _is_name(values[:-width]) and len(_numbers(values[-width:])):
            continue
        if not width or len(vector) != width:
            raise UserError(f"{path}: line {number:,} must have a name and {width:,} numbers")
        for row, sure in candidates.items():
            if row is not None and (row not in matches or (sure and not matches[row][0])):
                matches[row] = (sure, vector)
    rows = sorted(matches)
    return rows, np.array([matches[row][1] for row in rows], np.float32).reshape(len(rows), width)


def _is_name(words: Sequence[str]) -> bool:
    """Return True if there is at least one word and none is a number."""
    for word in words:
        try:
            float(word)
        except ValueError:
            continue
        return False
    return len(words) > 0


def _count(values: Sequence[str]) -> int:
    """Return how many of a line's last fields are numbers."""
    words = (number for number in range(len(values)) if not len(_numbers(values[-number - 1 :])))
    return next(words, len(values))


def _numbers(values: Sequence[str]) -> npt.NDArray[np.float32]:
    """Return the numbers of a line; empty if one of them is not a finite number."""
    try:
        with np.errstate(over="ignore"):
            vector = np.array(values, np.float32)
    except ValueError:
        return np.empty(0, np.float32)
    return vector if np.isfinite(vector).all() else vector[:0]
