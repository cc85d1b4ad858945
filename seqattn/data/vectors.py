"""Vectors of words or subwords that others have trained, from a text file."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from seqattn.data.text_files import read_lines
from seqattn.errors import UserError

_WORD = "▁"
"""Begins a sentencepiece piece that begins a word."""


def read_vectors(path: Path, pieces: Sequence[str]) -> tuple[list[int], npt.NDArray[np.float32]]:
    """The vectors of those pieces that a file has, in the text format of word2vec and fastText.

    Each line is a name and its D numbers, spaces between; a first line of two counts is passed
    over, and so is a name that holds spaces, as some of GloVe do, which names no piece.
    A piece is found by its name as it stands ("▁house", as BPEmb has it), else one that begins a
    word by the word ("house"). Of a name that comes twice the first counts.

    Args:
        path: it may end in ".gz".

    Returns:
        N numbers of pieces, and an array (N, D) of their vectors.

    Raises:
        UserError: naming a line with other than D numbers.
    """
    exact = {piece: number for number, piece in enumerate(pieces)}
    begun = {
        piece.removeprefix(_WORD): number
        for number, piece in enumerate(pieces)
        if piece.startswith(_WORD) and piece != _WORD
    }
    found: dict[int, tuple[bool, npt.NDArray[np.float32]]] = {}
    width = 0
    for number, line in enumerate(read_lines(path), 1):
        name, _, rest = line.partition(" ")
        meant = {begun.get(name): False, exact.get(name): True}
        values = rest.split() if number == 1 or meant.keys() != {None} else []
        if not values or (number == 1 and len(values) == 1):
            continue
        width = width or _count(values)
        vector = _numbers(values)
        if width and _is_name(values[:-width]) and len(_numbers(values[-width:])):
            continue
        if not width or len(vector) != width:
            raise UserError(
                f"{path} must have a name and {width:,} numbers in each line, line {number:,} "
                "has others"
            )
        for row, sure in meant.items():
            if row is not None and (row not in found or (sure and not found[row][0])):
                found[row] = (sure, vector)
    rows = sorted(found)
    return rows, np.array([found[row][1] for row in rows], np.float32).reshape(len(rows), width)


def _is_name(words: Sequence[str]) -> bool:
    """True if there are words, and no number among them."""
    for word in words:
        try:
            float(word)
        except ValueError:
            continue
        return False
    return len(words) > 0


def _count(values: Sequence[str]) -> int:
    """How many numbers stand at a line's end."""
    words = (number for number in range(len(values)) if not len(_numbers(values[-number - 1 :])))
    return next(words, len(values))


def _numbers(values: Sequence[str]) -> npt.NDArray[np.float32]:
    """The finite numbers of a line; none where one of them is none."""
    try:
        with np.errstate(over="ignore"):
            vector = np.array(values, np.float32)
    except ValueError:
        return np.empty(0, np.float32)
    return vector if np.isfinite(vector).all() else vector[:0]
