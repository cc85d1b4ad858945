"""Questions and windows of their contexts as padded tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from seqattn.data.batch import pad_rows
from seqattn.data.span_text import ReadText, TokenSpan
from seqattn.data.vocabulary import PAD
from seqattn.data.words import MATCHES, match_words

if TYPE_CHECKING:
    from datasets import Dataset


class Questions(NamedTuple):
    """A split as it came, in rows: `answers` lists the right ones, none of an unanswerable one."""

    ids: list[str]
    questions: list[str]
    contexts: list[str]
    answers: list[list[str]]

    @classmethod
    def of(cls, table: Dataset) -> Questions:
        """Reads the columns "id", "question", "context" and "answers"."""
        columns = (list(table[name]) for name in ("id", "question", "context", "answers"))
        return cls(*columns)


class Window(NamedTuple):
    """A question and the part of its context that is read with it.

    Attributes:
        question: with its end mark.
        context: the whole of it.
        start: the first token that is read.
        stop: the token after the last.
        answer: tokens of the context; None where the window does not hold an answer.
        row: the question's number.
    """

    question: ReadText
    context: ReadText
    start: int
    stop: int
    answer: TokenSpan | None
    row: int


@dataclass(frozen=True)
class SpanBatch:
    """Windows, padded on the right.

    Attributes:
        question: (B, Q) int64 ids with the end mark.
        context: (B, S) int64 ids of the window, S at least 1.
        match: (B, S, 4) float32, how each token's word meets the question; see `match_words`.
        start: (B,) the place where the answer starts; S where the window holds none.
        end: (B,) the place where it ends, itself included; S where the window holds none.
        begins: (B, S) the character of the context where each token begins.
        ends: (B, S) the character after its last; its beginning where it stands for none.
        offset: (B,) the window's first token in its context.
        index: (B,) the questions' numbers.
    """

    question: Tensor
    context: Tensor
    match: Tensor
    start: Tensor
    end: Tensor
    begins: Tensor
    ends: Tensor
    offset: Tensor
    index: Tensor

    @property
    def windows(self) -> int:
        """B."""
        return int(self.index.shape[0])

    @property
    def context_tokens(self) -> int:
        """Real tokens of all windows."""
        return int((self.context != PAD).sum())

    @property
    def padding_share(self) -> float:
        """Padded places of contexts and questions, as a share of all their places (0 to 1)."""
        sides = (self.context, self.question)
        real = sum(int((side != PAD).sum()) for side in sides)
        return 1.0 - real / sum(side.numel() for side in sides)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> SpanBatch:
        """Gives the same batch on another device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> SpanBatch:
        """Gives the same batch in page-locked memory; `DataLoader(pin_memory=True)` calls it."""
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> SpanBatch:
        return replace(
            self, **{part.name: change(getattr(self, part.name)) for part in fields(self)}
        )


def collate_windows(windows: Sequence[Window]) -> SpanBatch:
    """Pads B windows into a batch."""
    parts = [slice(window.start, window.stop) for window in windows]
    context = _at_least_one([w.context.ids[part] for w, part in zip(windows, parts)])
    places = context.shape[1]
    match = np.zeros((*context.shape, len(MATCHES)), np.float32)
    for row, (window, part) in enumerate(zip(windows, parts)):
        by_word = match_words(window.context.words, window.question.words)
        match[row, : window.stop - window.start] = by_word[window.context.word[part]]
    spans = np.full((len(windows), 2), places, np.int64)
    for row, window in enumerate(windows):
        if window.answer is not None:
            spans[row] = np.array(window.answer[:2]) - window.start
    arrays = {
        "question": pad_rows([window.question.ids for window in windows]),
        "context": context,
        "match": match,
        "start": spans[:, 0],
        "end": spans[:, 1],
        "begins": _at_least_one([w.context.begins[part] for w, part in zip(windows, parts)]),
        "ends": _at_least_one([w.context.ends[part] for w, part in zip(windows, parts)]),
        "offset": np.array([window.start for window in windows], np.int64),
        "index": np.array([window.row for window in windows], np.int64),
    }
    return SpanBatch(**{name: torch.from_numpy(array) for name, array in arrays.items()})


def _at_least_one(rows: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    padded = pad_rows(rows)
    return padded if padded.shape[1] else np.zeros((len(rows), 1), np.int64)
