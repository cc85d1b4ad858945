"""One side's vocabulary at work: a sentencepiece model, and what it does with line breaks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import sentencepiece

from seqattn.data.vocabulary import BOS, EOS, LINE_BREAK, PAD, UNK, set_apart
from seqattn.errors import UserError

_SPACED_BREAK = re.compile(r" *\n *")


class Pieces(NamedTuple):
    """The ids of a text, and where each begins and ends in it, in characters.

    The space before a word counts as a character of its piece. Of several pieces that spell one
    character the last has it, and the others have none.
    """

    ids: list[int]
    offsets: list[tuple[int, int]]


class Side:
    """The source's or the target's vocabulary.

    Args:
        model: a serialised sentencepiece model.

    Raises:
        UserError: bytes that are no sentencepiece model with our marks.
    """

    def __init__(self, model: bytes) -> None:
        self._processor = _processor(model)
        first = self._processor.id_to_piece(EOS + 1) if self.size > EOS + 1 else None
        # a model that folds nothing may have learned this piece like any other
        folds_spaces = self._processor.normalize("a  b") == self._processor.normalize("a b")
        self._line_breaks = folds_spaces and first == LINE_BREAK

    @property
    def size(self) -> int:
        """How many pieces."""
        return int(self._processor.get_piece_size())

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Gives each text's ids with the end mark and no begin mark."""
        read = [set_apart(text) for text in texts] if self._line_breaks else list(texts)
        ids: list[list[int]] = self._processor.encode(read, out_type=int, add_eos=True)
        return ids

    def offsets(self, text: str) -> Pieces:
        """Gives a line's ids without marks, and the characters that each stands for."""
        found = self._processor.encode(text, return_type="offset_mapping")
        return Pieces(found["ids"], found["offsets"])

    def decode(self, ids: Sequence[int]) -> str:
        """Gives the text of ids without marks; unknown says "⁇"."""
        # sentencepiece takes [] for no row at all, where we mean one empty sentence.
        text: str = self._processor.decode(ids) if ids else ""
        return _SPACED_BREAK.sub(LINE_BREAK, text) if self._line_breaks else text

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Names each id: "▁" begins a word, "↵" breaks a line."""
        names = [self._processor.id_to_piece(int(token)) for token in ids]
        return [name.replace(LINE_BREAK, "↵") for name in names]


def _processor(model: bytes) -> sentencepiece.SentencePieceProcessor:
    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError as error:
        raise UserError("a tokenizer model must be a sentencepiece model, it is not") from error
    marks = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
    if marks != (PAD, UNK, BOS, EOS):
        raise UserError(
            f"a tokenizer model must number pad, unk, bos, eos as {PAD}, {UNK}, {BOS}, {EOS}, "
            f"got {', '.join(map(str, marks))}"
        )
    return processor
