"""Questions on contexts as windows of ids, their answers as places in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import datasets
import numpy as np
from torch.utils.data import Dataset

from seqattn.data.span_batch import SpanBatch, Window, collate_windows
from seqattn.data.span_text import ReadText, TextReader, TokenSpan, find_span, trimmed
from seqattn.errors import UserError


@dataclass(frozen=True)
class WindowLimits:
    """How much is read at once.

    Args:
        window: tokens of a context that are read together; a longer context is read in windows.
        stride: tokens from a window's first to the next one's first; windows overlap by the rest.
        max_question: tokens of a question, the end mark counted.

    Raises:
        UserError: a value below 1 (below 2 of `max_question`), or a stride beyond the window.
    """

    window: int = 384
    stride: int = 192
    max_question: int = 64

    def __post_init__(self) -> None:
        for name, least in (("window", 1), ("stride", 1), ("max_question", 2)):
            if getattr(self, name) < least:
                raise UserError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.stride > self.window:
            raise UserError(
                f"stride must be at most window ({self.window}), so that no token is left out, "
                f"got {self.stride}"
            )

    def starts(self, tokens: int) -> range:
        """Gives the first token of each window of a context; one window of an empty context."""
        beyond = max(0, tokens - self.window)
        return range(0, -(-beyond // self.stride) * self.stride + 1, self.stride)

    def cut(self, question: ReadText) -> ReadText:
        """Gives a question's first tokens, the end mark after them; a short one as it is."""
        if len(question.ids) <= self.max_question:
            return question
        kept = [*range(self.max_question - 1), -1]
        ids, begins, ends, word, words = question
        return ReadText(ids[kept], begins[kept], ends[kept], word[kept], words)

    def windows(
        self, question: ReadText, context: ReadText, answer: TokenSpan | None, row: int
    ) -> list[Window]:
        """Gives a question's windows; those that hold the whole answer say so."""
        found = []
        for start in self.starts(len(context.ids)):
            stop = min(start + self.window, len(context.ids))
            holds = answer is not None and start <= answer.first and answer.last < stop
            found.append(Window(question, context, start, stop, answer if holds else None, row))
        return found


@dataclass
class Tally:
    """What became of a split's questions.

    Attributes:
        questions: that came.
        windows: that they are read in.
        long: questions beyond `max_question`.
        empty: questions or contexts without a token.
        answered: those with an answer that are read.
        inexact: answers that begin or end within a token, so that the smallest run of tokens that
            covers them stands for them.
        split: answers that no window holds as a whole.
    """

    questions: int = 0
    windows: int = 0
    long: int = 0
    empty: int = 0
    answered: int = 0
    inexact: int = 0
    split: int = 0


class SpanDataset(Dataset[SpanBatch]):
    """A split's windows, fetched a batch at a time.

    Args:
        rows: columns "question", "context", "answers" and "starts"; the first answer counts.
        reader: of the texts.
        limits: of the windows.
        drops: whether questions that are too long, and those without a token on either side, are
            left out (training); else long ones are cut and all are read (validation).

    Attributes:
        windows: the N windows.
        source_lengths: (N,) tokens of each window.
        target_lengths: (N,) tokens of each question.
        tally: what became of the questions.

    Raises:
        UserError: an answer that does not stand where its start says.
    """

    def __init__(
        self, rows: datasets.Dataset, reader: TextReader, limits: WindowLimits, drops: bool
    ) -> None:
        self.limits, self.drops = limits, drops
        self.tally = Tally(questions=len(rows))
        self.windows: list[Window] = []
        texts = list(rows["context"])
        contexts = {text: reader.context(text) for text in dict.fromkeys(texts)}
        columns = zip(rows["question"], texts, rows["answers"], rows["starts"], strict=True)
        for row, (asked, text, answers, starts) in enumerate(columns):
            first = (answers[0], starts[0]) if answers else None
            self._add(row, reader.question(asked), text, contexts[text], first)
        self.tally.windows = len(self.windows)
        self.source_lengths = np.array([w.stop - w.start for w in self.windows], np.int64)
        self.target_lengths = np.array([len(w.question.ids) for w in self.windows], np.int64)

    def _add(
        self,
        row: int,
        question: ReadText,
        text: str,
        context: ReadText,
        answer: tuple[str, int] | None,
    ) -> None:
        tally = self.tally
        long = len(question.ids) > self.limits.max_question
        empty = len(question.ids) == 1 or len(context.ids) == 0
        tally.long += long
        tally.empty += empty
        if self.drops and (long or empty):
            return
        span = None
        if answer is not None:
            tally.answered += 1
            span = find_span(context, *_checked(row, text, *answer))
            tally.inexact += span is None or not span.exact
        windows = self.limits.windows(self.limits.cut(question), context, span, row)
        tally.split += span is not None and all(window.answer is None for window in windows)
        self.windows.extend(windows)

    def __len__(self) -> int:
        """Gives N, the windows."""
        return len(self.windows)

    def __getitem__(self, place: int) -> SpanBatch:
        """Gives one window as a batch of one."""
        return self.__getitems__([place])

    def __getitems__(self, places: Sequence[int]) -> SpanBatch:
        """Gives a batch; `DataLoader` calls it with a batch sampler's list."""
        return collate_windows([self.windows[place] for place in places])


def _checked(row: int, text: str, answer: str, start: int) -> tuple[int, int]:
    if text[start : start + len(answer)] != answer:
        raise UserError(
            f"question {row + 1}: the answer {answer!r} must stand at character {start} of its "
            f"context, there is {text[start : start + len(answer)]!r}"
        )
    return trimmed(answer, start)
