"""Byte-level BPE vocabularies (Radford et al. 2019, section 2.2), such as BART's, by tokenizers."""

import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ValidationError

from seqattn.data.escapes import valid_texts
from seqattn.errors import UserError
from seqattn.inputs import check_json
from seqattn.installation import install
from seqattn.tokens import EOS, RESERVED, UNK

_PRINTED = {*range(33, 127), *range(161, 173), *range(174, 256)}
_UNPRINTED = sorted({*range(256)} - _PRINTED)  # written as the characters from 256
_BYTES = {chr(byte): byte for byte in _PRINTED} | {
    chr(n): byte for n, byte in enumerate(_UNPRINTED, 256)
}
_UNKNOWN = "âģĩ"  # the bytes of "⁇"


class ByteLevelModel(BaseModel, strict=True):
    """Content of a serialized byte-level model.

    `pieces` are in the order of their ids, the four marks first; `control` are those that text
    cannot spell; `merges` are pairs separated by a space; `prefix_space` puts a space before texts.
    """

    pieces: list[str]
    control: list[str]
    merges: list[str]
    prefix_space: bool


class ByteLevelSide:
    """Vocabulary of a side with the methods of `Side`. Sampling is not supported.

    Args:
        model: a serialized `ByteLevelModel`.
        begin: pieces before every text.

    Raises:
        UserError: for a model that is damaged or lacks a piece, or if tokenizers is not installed.
    """

    languages: ClassVar[dict[str, str]] = {}

    def __init__(self, model: bytes, begin: Sequence[str] = ()) -> None:
        try:
            package: Any = importlib.import_module("tokenizers")
        except ImportError as error:
            raise UserError(
                f"byte-level vocabularies need tokenizers; {install('exchange')}"
            ) from error
        damaged = "the tokenizer model is not a byte-level model"
        try:
            check_json(model.splitlines(), Path("the tokenizer model"))
            content = ByteLevelModel.model_validate(json.loads(model))
            self._names, self.size = content.pieces, len(content.pieces)
            numbers = {name: number for number, name in enumerate(self._names)}
            merges = [
                (left, right) for left, right in (merge.split(" ") for merge in content.merges)
            ]
            bpe = package.models.BPE(numbers, merges)
            self.begin = [numbers[name] for name in begin]
            silent = {*range(RESERVED), *(numbers[name] for name in content.control)}
            self._silent = silent - {UNK}
        except KeyError as error:
            raise UserError(f"the tokenizer model has no piece {error}") from error
        except (ValueError, ValidationError) as error:
            raise UserError(damaged) from error
        except Exception as error:  # of tokenizers, for merges of unknown pieces
            raise UserError(damaged) from error
        if len(numbers) != self.size or self.size <= RESERVED:
            raise UserError(damaged)
        self._tokenizer = package.Tokenizer(bpe)
        splitting = package.pre_tokenizers.ByteLevel(add_prefix_space=content.prefix_space)
        self._tokenizer.pre_tokenizer = splitting
        self._decoder = package.decoders.ByteLevel()

    def line_breaks(self) -> Literal["piece", "space", "unknown"]:
        """Encoding of line breaks: as any other byte."""
        return "piece"

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode texts, after `begin` and with the end mark; an empty text has only the latter."""
        rows = [self._tokenizer.encode(text).ids for text in valid_texts(texts)]
        return [[*self.begin, *row, EOS] if row else [EOS] for row in rows]

    def sample(
        self, texts: Sequence[str], alpha: float, randoms: Sequence[Random]
    ) -> list[list[int]]:
        """Raise UserError, as its segmentations are not sampled."""
        raise UserError("loader.subword_sampling does not support byte-level BPE; set it to null")

    def offsets(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Return ids without end, and their (begin, end) in characters, as `Side.offsets`."""
        rows = []
        for text in valid_texts(texts):
            encoding = self._tokenizer.encode(text)
            spans = [(0, 0)] * len(self.begin) + encoding.offsets
            nexts = [start for start, _ in spans[1:]] + [len(text)]
            spans = [(a, max(a, min(b, next_start))) for (a, b), next_start in zip(spans, nexts)]
            rows.append(([*self.begin, *encoding.ids], spans))
        return rows

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Decode rows of ids; control pieces are omitted, unknown becomes "⁇"."""
        return [
            self._decoder.decode(
                [_UNKNOWN if n == UNK else self._names[n] for n in row if n not in self._silent]
            )
            for row in rows
        ]

    def vocabulary(self) -> list[str]:
        """Return the piece of every id, in the notation of byte-level BPE."""
        return list(self._names)

    def texts(self) -> list[str]:
        """Return the text of every id, as `Side.texts`."""
        names = ("" if n in self._silent else name for n, name in enumerate(self._names))
        rows = (bytes(_BYTES.get(character, ord("?")) for character in name) for name in names)
        return [row.decode("utf-8", "surrogateescape") for row in rows]

    def pieces(self, ids: Sequence[int], text: str | None = None) -> list[str]:
        """Return a label for each id, as `Side.pieces`; parts of a character keep their notation.

        Args: as `Side.pieces`; `text` is ignored, as every text has pieces.
        """
        labels = []
        for name in (self._names[int(token)] for token in ids):
            label = self._decoder.decode([name])
            label = name if "\ufffd" in label else label
            labels.append(label.replace(" ", "▁").replace("\n", "↵"))
        return labels
