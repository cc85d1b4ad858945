"""Questions and windows of their contexts as padded tensors."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqattn.data.base import Texts
from seqattn.data.batch import Tensors, pad_rows
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.extras.answers.span_clues import CLUES, word_clues
from seqattn.extras.answers.span_options import SpanOptions
from seqattn.extras.answers.span_text import (
    MATCHES,
    Ints,
    ReadText,
    TextReader,
    TokenSpan,
    match_words,
    spell_words,
)

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True)
class Questions(Texts):
    """Raw questions with their contexts, as sources; references are the right answers, or none."""

    ids: list[str]
    contexts: list[str]

    @classmethod
    def of(cls, table: "Dataset") -> "Questions":
        """Read the columns "id", "question", "context" and "answers" of a table."""
        names = ("question", "answers", "id", "context")
        questions, answers, ids, contexts = (list(table[name]) for name in names)
        return cls(questions, [], answers, ids, contexts)

    def score(self, scorer: Any, outputs: Sequence[str]) -> Any:
        answers, gold = (
            dict(zip(self.ids, texts, strict=True)) for texts in (outputs, self.references)
        )
        return scorer.score(answers, gold)


class Window(NamedTuple):
    """A question and the window of its context that is read with it.

    Attributes:
        question: with its end mark.
        context: the full context; tokens from `start` up to `stop` are read.
        answers: token spans of the right answers in the window, the main one first; None if the
            right answers do not occur in the context.
        row: number of the question.
    """

    question: ReadText
    context: ReadText
    start: int
    stop: int
    answers: Sequence[TokenSpan] | None
    row: int


@dataclass(frozen=True)
class SpanBatch(Tensors):
    """Windows, padded on the right.

    Attributes:
        question: (B, Q) int64 ids with the end mark.
        context: (B, S) int64 ids of the window, S at least 1.
        match: (B, S, 21) float32, features of each token's word, from `match_words` and
            `word_clues`.
        characters: (B, W, L) int64, from `spell_words`, of the distinct words of the question and
            the window; the first word is empty.
        question_words: (B, Q) the index of each token's word there; 0 for the end mark.
        context_words: (B, S) the same.
        answers: (B, N, 2) first and last position of each right answer, S if the window holds
            none, padded with -1; all -1 if the answers are unknown, which adds no loss.
        begins: (B, S) the character of the context where each token begins.
        ends: (B, S) the character after its last; equal to `begins` for an empty token.
        offset: (B,) the window's first token in its context.
        index: (B,) the questions' numbers.
        context_tokens: number of real tokens in all windows.
        question_tokens: number of real tokens in all questions.
    """

    counts: ClassVar[Mapping[str, str]] = {
        "context_tokens": "context",
        "question_tokens": "question",
    }
    question: Tensor
    context: Tensor
    match: Tensor
    characters: Tensor
    question_words: Tensor
    context_words: Tensor
    answers: Tensor
    begins: Tensor
    ends: Tensor
    offset: Tensor
    index: Tensor
    context_tokens: int
    question_tokens: int

    @property
    def start(self) -> Tensor:
        """(B,) first position of the first answer; S if the window holds none."""
        return self.answers[:, 0, 0]

    @property
    def end(self) -> Tensor:
        """(B,) last position of the first answer; S if the window holds none."""
        return self.answers[:, 0, 1]

    @property
    def windows(self) -> int:
        """Number of windows, B."""
        return int(self.index.shape[0])


def collate_windows(windows: Sequence[Window]) -> SpanBatch:
    """Pad B windows into a batch."""
    parts = [(window.context, slice(window.start, window.stop)) for window in windows]
    context = pad_rows([text.ids[part] for text, part in parts])
    match = np.zeros((*context.shape, len(MATCHES) + len(CLUES)), np.float32)
    max_answers = max(1, *(len(window.answers or ()) for window in windows))
    spans = np.full((len(windows), max_answers, 2), -1, np.int64)
    spans[:, 0] = context.shape[1]
    words, known = [], {}
    for row, (window, (text, part)) in enumerate(zip(windows, parts, strict=True)):
        read = id(text), id(window.question)  # shared by the windows of a question
        if read not in known:
            question = window.question
            about = match_words(text.words, question.words), word_clues(text, question)
            known[read] = np.concatenate(about, axis=1)
        match[row, : window.stop - window.start] = known[read][text.word[part]]
        words.append(_numbered(window))
        if window.answers is None:
            spans[row] = -1
        for number, answer in enumerate(window.answers or ()):
            spans[row, number] = answer.first - window.start, answer.last - window.start
    different, question_words, context_words = zip(*words, strict=True)
    arrays = {
        "question": pad_rows([window.question.ids for window in windows]),
        "context": context,
        "match": match,
        "characters": spell_words(different),
        "question_words": pad_rows(question_words),
        "context_words": pad_rows(context_words),
        "answers": spans,
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


def _numbered(window: Window) -> tuple[list[str], Ints, Ints]:
    """Return a row's distinct words, "" first, and each token's word index, for both sides."""
    question_text, read = window.question, window.context
    question_words = [*question_text.words, ""]  # word of the end mark
    question = [question_words[word] for word in question_text.word.tolist()]
    context = [read.words[word] for word in read.word[window.start : window.stop].tolist()]
    numbers = {word: number for number, word in enumerate(dict.fromkeys(["", *question, *context]))}
    sides = (np.array([numbers[w] for w in side], np.int64) for side in (question, context))
    return [*numbers], next(sides), next(sides)


class SpanEncoder:
    """Encoder of any questions and contexts into batches, without a data set.

    Questions that are too long are truncated.
    """

    def __init__(self, tokenizer: Tokenizer, options: SpanOptions) -> None:
        self.reader = TextReader(tokenizer)
        self.options = options

    def __call__(self, questions: Sequence[str], contexts: Sequence[str]) -> Iterator[SpanBatch]:
        """Yield the windows of N questions, each on its context, longest first.

        Returns:
            Batches whose `index` is the question's number from 0; a question's windows are
                consecutive, but may span batches.

        Raises:
            UserError: if the numbers of questions and contexts differ.
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
            Window(question, read, start, min(start + options.window, tokens), (), row)
            for start in options.pieces(np.array([tokens]))[1].tolist()
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
