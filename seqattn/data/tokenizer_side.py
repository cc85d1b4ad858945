"""Vocabulary of one side of a tokenizer: a sentencepiece model with a text's first pieces."""

import multiprocessing
import re
from collections.abc import Sequence
from functools import lru_cache
from random import Random
from typing import Literal, NamedTuple

import sentencepiece

from seqattn.data.escapes import escaped, unescaped, valid_texts
from seqattn.data.segmentation import Segmentation
from seqattn.errors import UserError
from seqattn.tokens import BOS, EOS, PAD, RESERVED, UNK

LINE_BREAK = "\n"
_SPACED_BREAK = re.compile(r"(?:(?<! ) +)?\n *")  # from a run's start: else quadratic in it
_BROKEN = re.compile(r"(?<!\s)\s*\n\s*")
_CODE = re.compile(r"(>>[^<>]+<<)(.*)", re.DOTALL)
_LANGUAGE = re.compile(r"__([a-z]+)__|>>([^<>]+)<<|([a-z]{2,3}_(?:[A-Z]{2}|[A-Z][a-z]{3}))")


class Begin(NamedTuple):
    """Pieces that begin every text of a side, such as a language code."""

    source: tuple[str, ...] = ()
    target: tuple[str, ...] = ()


NO_MARKS = Begin()


class Side:
    """Vocabulary of the source or the target side, a serialized sentencepiece model.

    A text that begins with a control piece of the form ">>fra<<" has it in place of `begin`.

    Args:
        model: the serialized model.
        begin: pieces before every text.
        size: number of its pieces that belong to the vocabulary; later ones are read as unknown.
            None for all.

    Raises:
        UserError: for bytes that are not a sentencepiece model with our marks, or lack a piece.
    """

    def __init__(self, model: bytes, begin: Sequence[str] = (), size: int | None = None) -> None:
        try:
            # a worker has one core; -1 uses all of them
            threads = -1 if multiprocessing.parent_process() is None else 1
            self._processor = sentencepiece.SentencePieceProcessor(
                model_proto=model, num_threads=threads
            )
        except RuntimeError as error:
            raise UserError("the tokenizer model is not a sentencepiece model") from error
        kinds = ("pad_id", "unk_id", "bos_id", "eos_id")
        marks = tuple(getattr(self._processor, name)() for name in kinds)
        if marks != (PAD, UNK, BOS, EOS):
            raise UserError(
                f"the tokenizer model must have ids {PAD}, {UNK}, {BOS}, {EOS} for pad, unk, bos, "
                f"eos, got {', '.join(map(str, marks))}"
            )
        pieces = int(self._processor.get_piece_size())
        self.size = pieces if size is None else size
        if not RESERVED < self.size <= pieces:
            raise UserError(f"the tokenizer model has {pieces} pieces, not {self.size}")
        ids = [*range(self.size)]
        try:
            names = self._processor.id_to_piece(ids)
        except UnicodeDecodeError as error:
            raise UserError("the tokenizer model has pieces that are not valid UTF-8") from error
        first = self._processor.id_to_piece(EOS + 1) if self.size > EOS + 1 else None
        # a model without folding may have learned this piece like any other
        self._folds = self._processor.normalize("a  b") == self._processor.normalize("a b")
        self._line_breaks = self._folds and first == LINE_BREAK
        self._segmentation = lru_cache(1)(Segmentation)
        self.begin = [self._processor.piece_to_id(name) for name in begin]
        for name, number in zip(begin, self.begin, strict=True):
            if number < RESERVED or number >= self.size:
                raise UserError(f"the tokenizer model has no piece {name!r} to begin a text with")
        unused, control = self._processor.is_unused(ids), self._processor.is_control(ids)
        self._unused = {names[number]: number for number in ids if unused[number]}
        self._codes = {
            names[number]: number
            for number in ids
            if control[number] and _CODE.fullmatch(names[number])
        }
        matches = [_LANGUAGE.fullmatch(names[number]) for number in ids if control[number]]
        self.languages = {match[match.lastindex or 0]: match[0] for match in matches if match}
        """Pieces of the languages of a multilingual model, by code."""
        self._adopted = pieces > self.size or bool(self._unused)

    def line_breaks(self) -> Literal["piece", "space", "unknown"]:
        """Encoding of line breaks."""
        if any(LINE_BREAK in piece for piece in self.vocabulary()):
            return "piece"
        folds = self._processor.normalize("a\nb") == self._processor.normalize("a b")
        return "space" if folds else "unknown"

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode texts, after `begin` and with the end mark; an empty text has only the latter."""
        begins, read = self._prepared(texts)
        ids: list[list[int]] = self._processor.encode(read, out_type=int, add_eos=True)
        if self._adopted:
            ids = [self._matched(*row) for row in zip(ids, read, strict=True)]
        return self._with_begin(begins, ids)

    def sample(
        self, texts: Sequence[str], alpha: float, randoms: Sequence[Random]
    ) -> list[list[int]]:
        """Encode texts with sampled segmentations; see `encode`.

        Args:
            alpha: for a unigram model, the exponent of a segmentation's probability; for BPE, the
                probability of leaving out a merge; above 0 and below 1.
            randoms: a generator for each text.
        """
        begins, read = self._prepared(texts)
        normalized: list[str] = self._processor.normalize(read)
        sample = self._segmentation(self._processor, alpha)
        rows = [[*sample(*pair), EOS] for pair in zip(normalized, randoms, strict=True)]
        if self._adopted:
            rows = [[token if token < self.size else UNK for token in row] for row in rows]
        return self._with_begin(begins, rows)

    def _prepared(self, texts: Sequence[str]) -> tuple[list[list[int]], list[str]]:
        """Return the ids that begin each text, if any do, and the texts for sentencepiece."""
        read = valid_texts(texts)
        begins = [self.begin] * len(read) if self.begin else []
        if self._codes:
            begins = [self.begin] * len(read)
            for number, text in enumerate(read):
                match = _CODE.match(text)
                if match and match[1] in self._codes:
                    begins[number], read[number] = [self._codes[match[1]]], match[2]
        if self._line_breaks:
            return begins, [set_apart(text) for text in read]
        return begins, read if self._folds else [escaped(text) for text in read]

    def _with_begin(self, begins: list[list[int]], rows: list[list[int]]) -> list[list[int]]:
        """Put the ids that begin each text before those of its pieces."""
        if not begins:
            return rows
        return [
            [*begin, *row] if len(row) > 1 else row for begin, row in zip(begins, rows, strict=True)
        ]

    def _matched(self, ids: list[int], text: str) -> list[int]:
        """Read pieces outside the vocabulary as unknown, and unknown text by an unused piece."""
        ids = [token if token < self.size else UNK for token in ids]
        if UNK not in ids or not self._unused:
            return ids
        names = [*self._processor.encode(text, out_type=str), ""]
        return [
            self._unused.get(name, UNK) if token == UNK else token
            for token, name in zip(ids, names, strict=True)
        ]

    def offsets(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Return ids of single-line texts without end, and their (begin, end) in characters.

        The space before a word belongs to its first piece. If several pieces spell one character,
        it belongs to the last, and the others are empty, like those of `begin`.
        """
        encode = self._processor.encode
        mappings = [encode(text, return_type="offset_mapping") for text in valid_texts(texts)]
        rows = [(mapping["ids"], mapping["offsets"]) for mapping in mappings]
        if not (self._adopted or self.begin):
            return rows
        begin, empty = self.begin, [(0, 0)] * len(self.begin)
        return [
            ([*begin, *self._matched([*ids, EOS], text)[:-1]], [*empty, *offsets])
            for (ids, offsets), text in zip(rows, texts, strict=True)
        ]

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Decode rows of ids; pad, begin and end marks are omitted, unknown becomes "⁇"."""
        marks = (PAD, BOS, EOS)
        return [self._text([int(token) for token in row if token not in marks]) for row in rows]

    def _text(self, ids: list[int]) -> str:
        # sentencepiece reads [] as no rows, not as one empty sentence
        text: str = self._processor.decode(ids) if ids else ""
        if self._line_breaks:
            return _SPACED_BREAK.sub(LINE_BREAK, text)
        if self._folds:
            return text
        return unescaped(text)

    def vocabulary(self) -> list[str]:
        """Return the piece of every id, in sentencepiece's notation."""
        names: list[str] = self._processor.id_to_piece([*range(self.size)])
        return names

    def texts(self) -> list[str]:
        """Return the text of every id, "" for marks; a byte of a character is a lone surrogate, as
        Python's "surrogateescape" has it."""
        ids, texts = [*range(self.size)], [name.replace("▁", " ") for name in self.vocabulary()]
        for number, byte in enumerate(self._processor.is_byte(ids)):
            if byte:  # <0xC3>
                raw = bytes.fromhex(texts[number][3:-1])
                texts[number] = raw.decode("utf-8", "surrogateescape")
        marks = self._processor.is_control(ids)
        return ["" if mark else text for mark, text in zip(marks, texts)]

    def pieces(self, ids: Sequence[int], text: str | None = None) -> list[str]:
        """Return a label for each id, for plots: "▁" begins a word, "↵" is a line break.

        Args:
            ids: of a text, all or a prefix.
            text: if given, unknown pieces are labeled by its characters.
        """
        names = [self._processor.id_to_piece(int(token)) for token in ids]
        if text is not None:
            begins, read = self._prepared([text])
            text_pieces = self._processor.encode(read, out_type=str)[0]
            first = len(begins[0]) if begins else 0
            names[first : first + len(text_pieces)] = [
                piece if token == UNK else name
                for token, name, piece in zip(ids[first:], names[first:], text_pieces, strict=False)
            ]
        return [name.replace(LINE_BREAK, "↵") for name in names]


def set_apart(text: str) -> str:
    """Remove space before a line break, put a space after it, and drop empty lines.

    The pieces of a word are then the same at the start of a line and within it.
    """
    return _BROKEN.sub(f"{LINE_BREAK} ", text.strip())
