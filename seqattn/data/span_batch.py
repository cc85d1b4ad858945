"""Questions and windows of their contexts as padded tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqattn.data.batch import Tensors, pad_rows
from seqattn.data.options import SpanOptions
from seqattn.data.span_text import MATCHES, ReadText, TextReader, TokenSpan, match_words
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError

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
        return cls(*(list(table[name]) for name in ("id", "question", "context", "answers")))


class Window(NamedTuple):
    """A question and the part of its context that is read with it.

    Attributes:
        question: with its end mark.
        context: the whole of it, of which the tokens from `start` up to `stop` are read.
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
class SpanBatch(Tensors):
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
        context_tokens: real tokens of all windows.
        question_tokens: real tokens of all questions.
    """

    counts: ClassVar[Mapping[str, str]] = {
        "context_tokens": "context",
        "question_tokens": "question",
    }
    question: Tensor
    context: Tensor
    match: Tensor
    start: Tensor
    end: Tensor
    begins: Tensor
    ends: Tensor
    offset: Tensor
    index: Tensor
    context_tokens: int
    question_tokens: int

    @property
    def windows(self) -> int:
        """B."""
        return int(self.index.shape[0])

    @property
    def padding_share(self) -> float:
        """Padded places of contexts and questions, as a share of all their places (0 to 1)."""
        real = self.context_tokens + self.question_tokens
        return 1.0 - real / (self.context.numel() + self.question.numel())


def collate_windows(windows: Sequence[Window]) -> SpanBatch:
    """Pads B windows into a batch."""
    parts = [(window.context, slice(window.start, window.stop)) for window in windows]
    context = pad_rows([text.ids[part] for text, part in parts])
    match = np.zeros((*context.shape, len(MATCHES)), np.float32)
    spans = np.full((len(windows), 2), context.shape[1], np.int64)
    for row, (window, (text, part)) in enumerate(zip(windows, parts, strict=True)):
        by_word = match_words(text.words, window.question.words)
        match[row, : window.stop - window.start] = by_word[text.word[part]]
        if window.answer is not None:
            spans[row] = np.array(window.answer[:2]) - window.start
    arrays = {
        "question": pad_rows([window.question.ids for window in windows]),
        "context": context,
        "match": match,
        "start": spans[:, 0],
        "end": spans[:, 1],
        "begins": pad_rows([text.begins[part] for text, part in parts]),
        "ends": pad_rows([text.ends[part] for text, part in parts]),
        "offset": np.array([window.start for window in windows], np.int64),
        "index": np.array([window.row for window in windows], np.int64),
    }
    return SpanBatch(
        **{name: torch.from_numpy(array) for name, array in arrays.items()},
        context_tokens=sum(window.stop - window.start for window in windows),
        question_tokens=sum(len(window.question.ids) for window in windows),
    )


class SpanEncoder:
    """Reads any questions on any contexts into batches; needs no data set.

    Args:
        tokenizer: of the model.
        options: how contexts are read, and what a batch may hold; a longer question is cut.
    """

    def __init__(self, tokenizer: Tokenizer, options: SpanOptions) -> None:
        self.reader = TextReader(tokenizer)
        self.options = options

    def __call__(self, questions: Sequence[str], contexts: Sequence[str]) -> Iterator[SpanBatch]:
        """The windows of N questions, each on its context, the longest first.

        Returns:
            Batches whose `index` is a question's number from 0; a question's windows follow each
            other, though a batch may end between them.

        Raises:
            UserError: there are not as many contexts as questions.
        """
        if len(questions) != len(contexts):
            raise UserError(
                f"each question must have a context, got {len(questions)} questions and "
                f"{len(contexts)} contexts"
            )
        pairs = zip(questions, contexts, strict=True)
        read = [self._windows(row, *pair) for row, pair in enumerate(pairs)]
        read.sort(key=lambda windows: (-len(windows), -windows[0].stop))
        return self._batches([window for windows in read for window in windows])

    def _windows(self, row: int, text: str, context: str) -> list[Window]:
        options, read = self.options, self.reader.context(context)
        question, tokens = self.reader.question(text).cut(options.max_question), len(read.ids)
        return [
            Window(question, read, start, min(start + options.window, tokens), None, row)
            for start in options.starts(tokens)
        ]

    def _batches(self, windows: Sequence[Window]) -> Iterator[SpanBatch]:
        batch: list[Window] = []
        longest = 0
        for window in windows:
            length = max(window.stop - window.start, len(window.question.ids))
            if batch and len(batch) >= self.options.rows(max(longest, length)):
                yield collate_windows(batch)
                batch, longest = [], 0
            batch.append(window)
            longest = max(longest, length)
        if batch:
            yield collate_windows(batch)
