"""Sentencepiece models from elsewhere, rewritten so that their ids are ours.

The few fields that matter are read and written here: sentencepiece's own classes need one version
of protobuf, which other packages may not allow.
"""

import math
import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from seqattn.errors import UserError
from seqattn.tokens import UNK

NORMAL, UNKNOWN, CONTROL, SYMBOL, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Kinds of pieces."""
UNIGRAM, BPE = 1, 2
_PIECE, _TRAINER, _NORMALIZER, _DENORMALIZER = 1, 2, 3, 5  # fields of a model
_TYPE, _SIZE, _BYTE_FALLBACK, _UNK_SURFACE = 3, 4, 35, 44  # fields of a trainer
_IDS, _NAMES = {0: 43, 1: 40, 2: 41, 3: 42}, {0: 48, 1: 45, 2: 46, 3: 47}  # by our ids
MARKS = ("<pad>", "<unk>", "<s>", "</s>")
"""Names of our marks, in the order of their ids."""


class Piece(NamedTuple):
    """A piece with its log-probability, or minus its rank for BPE."""

    name: str
    score: float = 0.0
    kind: int = NORMAL


class Normalizer(NamedTuple):
    """Changes that a model makes to a text before it segments it."""

    rules: bytes
    """Compiled rules, empty for none."""
    prefix: bool
    """Put a space before the text."""
    folds: bool
    """Replace several spaces by one, and remove those around the text."""


@dataclass(frozen=True)
class ForeignModel:
    """A model of any order of pieces.

    Args:
        pieces: in order.
        algorithm: `UNIGRAM` or `BPE`.
        marks: names of its marks for padding, begin and end.
        settings: its other fields, serialized.
    """

    pieces: Sequence[Piece]
    algorithm: int
    marks: Collection[str] = ("<pad>", "<s>", "</s>")
    settings: bytes = b""

    @classmethod
    def of(cls, pieces: Sequence[Piece], algorithm: int, normalizer: Normalizer) -> "ForeignModel":
        """Build a model with a normalizer; pieces of bytes spell what no other piece does."""
        fallback = any(piece.kind == BYTE for piece in pieces)
        trainer = _field(_TYPE, algorithm) + _field(_BYTE_FALLBACK, fallback)
        rules, prefix, folds = normalizer
        changes = _field(2, rules) + _field(3, prefix) + _field(4, folds)
        settings = _field(_TRAINER, trainer) + _field(_NORMALIZER, changes)
        return cls(pieces, algorithm, settings=settings)

    @classmethod
    def read(cls, content: bytes, name: object) -> "ForeignModel":
        """Parse a serialized model. Args: name: of its file, for messages.

        Raises:
            UserError: if it is none, or segments text neither by unigrams nor by BPE.
        """
        pieces, trainer, settings = [], b"", b""
        try:
            for number, value in _fields(content):
                if number == _PIECE:
                    fields = dict(_fields(_bytes(value)))
                    score = struct.unpack("<f", _bytes(fields.get(2, bytes(4))))[0]
                    if not math.isfinite(score):
                        raise ValueError("a score is not a finite number")
                    kind = int(fields.get(3, NORMAL))
                    pieces.append(Piece(_bytes(fields[1]).decode(), score, kind))
                elif number in (_TRAINER, _NORMALIZER, _DENORMALIZER):
                    trainer += _bytes(value) if number == _TRAINER else b""
                    settings += _field(number, _bytes(value))
            spec = dict(_fields(trainer))
            names = [_bytes(spec.get(_NAMES[n], MARKS[n].encode())).decode() for n in (0, 2, 3)]
        except (ValueError, KeyError, IndexError, struct.error) as error:
            raise UserError(f"{name} is not a sentencepiece model") from error
        algorithm = spec.get(_TYPE, UNIGRAM)
        if sum(piece.kind == UNKNOWN for piece in pieces) != 1:
            raise UserError(f"{name} is not a sentencepiece model")
        if algorithm not in (UNIGRAM, BPE):
            raise UserError(f"{name} is a model of words or characters; use a unigram or BPE model")
        assert isinstance(algorithm, int)
        return cls(pieces, algorithm, names, settings)

    @property
    def normalizer(self) -> Normalizer:
        """Changes that it makes to a text."""
        spec: dict[int, int | bytes] = {}
        for number, value in _fields(self.settings):
            if number == _NORMALIZER:
                spec |= dict(_fields(_bytes(value)))
        return Normalizer(_bytes(spec.get(2, b"")), bool(spec.get(3, 1)), bool(spec.get(4, 1)))

    def adopted(
        self,
        names: Sequence[str] | None = None,
        control: Collection[str] = (),
        symbols: Collection[str] = (),
    ) -> bytes:
        """Return the serialized model with our marks as its first ids.

        Scores alone decide how text is segmented, so that the order of pieces does not matter.

        Args:
            names: pieces after the marks; the model's others come last. Those that it lacks never
                come from segmentation. None for its own, in their order.
            control: names of pieces that text cannot spell.
            symbols: names of pieces that are never split.
        """
        by_name = {piece.name: piece for piece in self.pieces}
        special = {piece.name for piece in self.pieces if piece.kind == UNKNOWN} | {
            piece.name
            for piece in self.pieces
            if piece.kind == CONTROL and piece.name in self.marks
        }
        if names is None:
            names = [piece.name for piece in self.pieces if piece.name not in special]
        control, symbols, places = set(control), set(symbols), set(names)
        marks = [mark if mark not in places else f"<{mark}>" for mark in MARKS]
        pieces = [
            Piece(mark, 0.0, UNKNOWN if n == UNK else CONTROL) for n, mark in enumerate(marks)
        ]
        placed = {*places, *special, *marks}
        unused = [name for name in by_name if name not in placed]
        for name in [*names, *unused]:
            piece = by_name.get(name, Piece(name, 0.0, UNUSED))
            # BPE would merge an unused piece, and split it again, so that others are not found
            merged = self.algorithm == BPE and piece.kind == UNUSED and len(name) > 1
            if name in control or piece.kind == UNKNOWN or merged:
                piece = piece._replace(kind=CONTROL)
            elif name in symbols:
                piece = piece._replace(kind=SYMBOL)
            pieces.append(piece)
        trainer = _field(_SIZE, len(pieces)) + _field(_UNK_SURFACE, "⁇".encode())
        for number, mark in enumerate(marks):
            trainer += _field(_IDS[number], number) + _field(_NAMES[number], mark.encode())
        # a field that is repeated takes its last value
        return b"".join([*map(_serialized, pieces), self.settings, _field(_TRAINER, trainer)])


def _serialized(piece: Piece) -> bytes:
    score = b"\x15" + struct.pack("<f", piece.score)
    return _field(_PIECE, _field(1, piece.name.encode()) + score + _field(3, piece.kind))


def _field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    content = bytearray()
    while value > 127:
        content.append(value & 127 | 128)
        value >>= 7
    return bytes([*content, value])


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field of a message in the wire format of protobuf."""
    position = 0

    def varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = content[position]
            position += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise ValueError("a number is too long")

    while position < len(content):
        number, wire = divmod(varint(), 8)
        if wire == 0:
            yield number, varint()
            continue
        size = varint() if wire == 2 else {1: 8, 5: 4}.get(wire, len(content))
        if size > len(content) - position:
            raise ValueError("a field is too long")
        yield number, content[position : position + size]
        position += size


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a text is expected")
    return value
