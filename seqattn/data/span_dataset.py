"""Questions on contexts as rows of ids, kept by content, and fetched in windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import numpy as np
import numpy.typing as npt
from torch.utils.data import Dataset

from seqattn.data.arrow_tables import Lists, content_digest, mapped, short_digest
from seqattn.data.options import SpanOptions
from seqattn.data.span_batch import SpanBatch, Window, collate_windows
from seqattn.data.span_text import ReadText, TextReader, TokenSpan, find_span, trimmed
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError

Ints = npt.NDArray[np.int64]
_TEXT, _NUMBER = datasets.Value("string"), datasets.Value("int32")
_READ = {name: datasets.Sequence(_NUMBER) for name in ("ids", "begins", "ends", "word")}
_CONTEXT = {**_READ, "text": _TEXT}
_QUESTION = {
    **_CONTEXT,
    # the row of its context, whether it has an answer, and the answer's tokens, -1 for none
    **dict.fromkeys(("context", "answered", "first", "last", "exact"), _NUMBER),
}


class QuestionTables(NamedTuple):
    """Questions and their contexts as ids, memory-mapped; each context stands there once."""

    questions: datasets.Dataset
    contexts: datasets.Dataset


def tokenize_questions(
    rows: datasets.Dataset, tokenizer: Tokenizer, cache_dir: Path
) -> QuestionTables:
    """The ids of every question and context, from the cache if they met the tokenizer before.

    Args:
        rows: columns "question", "context", "answers" and "starts"; the first answer counts.
        tokenizer: what encodes them.
        cache_dir: where the ids are kept; made if absent.

    Raises:
        UserError: an answer that does not stand where its start says.
    """
    rows = rows.select_columns(["question", "context", "answers", "starts"])
    key = short_digest(f"spans-1 {content_digest(rows)} {tokenizer.fingerprint}")
    folder = cache_dir / "tokens"
    reader = TextReader(tokenizer)
    numbers = {text: number for number, text in enumerate(dict.fromkeys(rows["context"]))}
    contexts = mapped(
        datasets.Dataset.from_dict({"context": list(numbers)}, datasets.Features(context=_TEXT)),
        _encode_contexts,
        _CONTEXT,
        folder / f"{key}-contexts.arrow",
        fn_kwargs={"reader": reader},
    )
    questions = mapped(
        rows,
        _encode_questions,
        _QUESTION,
        folder / f"{key}-questions.arrow",
        with_indices=True,
        fn_kwargs={"reader": reader, "numbers": numbers, "contexts": _Texts(contexts)},
    )
    return QuestionTables(questions, contexts)


def _encode_contexts(rows: dict[str, list[str]], reader: TextReader) -> dict[str, list[Any]]:
    return _columns([reader.context(text) for text in rows["context"]])


def _encode_questions(
    rows: dict[str, list[Any]],
    places: list[int],
    reader: TextReader,
    numbers: dict[str, int],
    contexts: _Texts,
) -> dict[str, list[Any]]:
    found = _columns([reader.question(text) for text in rows["question"]])
    found["context"] = [numbers[text] for text in rows["context"]]
    read = contexts.fetch(np.array(found["context"]))
    columns = zip(places, read, rows["context"], rows["answers"], rows["starts"], strict=True)
    spans = [_answer(*one) for one in columns]
    found["answered"] = [int(bool(answers)) for answers in rows["answers"]]
    for name in ("first", "last", "exact"):
        found[name] = [int(getattr(span, name)) for span in spans]
    return found


def _answer(
    row: int, read: ReadText, text: str, answers: list[str], starts: list[int]
) -> TokenSpan:
    if not answers:
        return TokenSpan(-1, -1, False)
    answer, start = answers[0], starts[0]
    if text[start : start + len(answer)] != answer:
        raise UserError(
            f"question {row + 1}: the answer {answer!r} must stand at character {start} of its "
            f"context, there is {text[start : start + len(answer)]!r}"
        )
    return find_span(read, *trimmed(answer, start)) or TokenSpan(-1, -1, False)


def _columns(read: Sequence[ReadText]) -> dict[str, list[Any]]:
    columns = {name: [getattr(text, name) for text in read] for name in _READ}
    return {**columns, "text": [" ".join(text.words) for text in read]}


class _Texts:
    """Texts as ids, fetched from a memory-mapped table."""

    def __init__(self, table: datasets.Dataset) -> None:
        self._lists = {name: Lists(table, name) for name in _READ}
        self._text = table.data.column("text")
        self.lengths = self._lists["ids"].lengths

    def fetch(self, rows: Ints) -> list[ReadText]:
        """Some texts, each that comes several times read once."""
        distinct, inverse = np.unique(rows, return_inverse=True)
        columns = [lists.fetch(distinct) for lists in self._lists.values()]
        words = [self._text[row].as_py().split() for row in distinct.tolist()]
        read = [ReadText(*one) for one in zip(*columns, words, strict=True)]
        return [read[place] for place in inverse.tolist()]


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
        tables: as `tokenize_questions` gives.
        limits: of windows and questions.
        drops: whether questions that are too long, and those without a token on either side, are
            left out (training); else long ones are cut and all are read (validation).

    Attributes:
        rows: (N,) the question of each window.
        starts: (N,) its first token in the context.
        source_lengths: (N,) tokens of each window.
        target_lengths: (N,) tokens of each question, the end mark counted.
        tally: what became of the questions.
    """

    def __init__(self, tables: QuestionTables, limits: SpanOptions, drops: bool) -> None:
        self.limits = limits
        self._questions, self._contexts = _Texts(tables.questions), _Texts(tables.contexts)
        numbers = {
            name: np.asarray(tables.questions.data.column(name).to_numpy(), np.int64)
            for name in ("context", "answered", "first", "last", "exact")
        }
        self._context, self._first, self._last = (numbers[n] for n in ("context", "first", "last"))
        asked = self._questions.lengths
        tokens = self._contexts.lengths[self._context]
        long, empty = asked > limits.max_question, (asked == 1) | (tokens == 0)
        kept = np.flatnonzero(~(long | empty)) if drops else np.arange(len(asked))
        counts = limits.count(tokens[kept])
        self.rows = np.repeat(kept, counts)
        number = np.arange(len(self.rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        self.starts = number * limits.stride
        self._stops = np.minimum(self.starts + limits.window, tokens[self.rows])
        first, last = self._first[self.rows], self._last[self.rows]
        self._holds = (first >= 0) & (self.starts <= first) & (last < self._stops)
        self.source_lengths = self._stops - self.starts
        self.target_lengths = np.minimum(asked[self.rows], limits.max_question)
        answered, found = numbers["answered"][kept] > 0, self._first[kept] >= 0
        self.tally = Tally(
            questions=len(asked),
            windows=len(self.rows),
            long=int(long.sum()),
            empty=int(empty.sum()),
            answered=int(answered.sum()),
            inexact=int((answered & (numbers["exact"][kept] == 0)).sum()),
            split=int(found.sum()) - len(np.unique(self.rows[self._holds])),
        )

    def __len__(self) -> int:
        """N, the windows."""
        return len(self.rows)

    def __getitem__(self, place: int) -> SpanBatch:
        return self.__getitems__([place])

    def __getitems__(self, places: Sequence[int]) -> SpanBatch:
        """A batch; `DataLoader` calls it with a batch sampler's list."""
        return collate_windows(self.windows(places))

    def windows(self, places: Sequence[int]) -> list[Window]:
        """Some windows. Args: places: B numbers from 0 to N - 1."""
        chosen = np.asarray(places)
        rows = self.rows[chosen]
        columns = zip(
            self._questions.fetch(rows),
            self._contexts.fetch(self._context[rows]),
            self.starts[chosen].tolist(),
            self._stops[chosen].tolist(),
            self._holds[chosen].tolist(),
            rows.tolist(),
            strict=True,
        )
        return [
            Window(
                asked.cut(self.limits.max_question), read, start, stop, self._span(row, holds), row
            )
            for asked, read, start, stop, holds, row in columns
        ]

    def _span(self, row: int, holds: bool) -> TokenSpan | None:
        return TokenSpan(int(self._first[row]), int(self._last[row]), True) if holds else None
