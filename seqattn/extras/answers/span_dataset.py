"""Questions on contexts as rows of ids, cached by content and fetched in windows."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np

from seqattn.data.arrow_tables import NUMBER, NUMBERS, TEXT, Ints, Lists, content_digest, table_of
from seqattn.data.loader import TokenRows
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.extras.answers.span_batch import SpanBatch, Window, collate_windows
from seqattn.extras.answers.span_options import SpanOptions
from seqattn.extras.answers.span_text import ReadText, TextReader, TokenSpan, find_span, trimmed

_CONTEXT = {"tokens": NUMBERS, "words": TEXT}
# row of its context, whether it has an answer, and tokens of the first answer, -1 for none
_ANSWERED = {None: 0, True: 1, False: -1}  # by whether one of its answers occurs in the context
_NUMBERS = ("context", "answered", "first", "last", "exact")
# first and last token of each distinct answer, in order
_QUESTION = {**_CONTEXT, **dict.fromkeys(_NUMBERS, NUMBER), "spans": NUMBERS}


def tokenize_questions(
    rows: datasets.Dataset, tokenizer: Tokenizer, cache_dir: Path
) -> tuple[datasets.Dataset, datasets.Dataset]:
    """Return the ids of all questions and contexts, cached by content and tokenizer.

    Args:
        rows: columns "question", "context", "answers" and "starts".

    Returns:
        Questions, and distinct contexts; memory-mapped.

    Raises:
        UserError: for an answer that does not occur at its stated start.
    """
    rows = rows.select_columns(["question", "context", "answers", "starts"])
    content = f"spans-4 {content_digest(rows)} {tokenizer.fingerprint}"
    reader = TextReader(tokenizer)
    numbers = {text: number for number, text in enumerate(dict.fromkeys(rows["context"]))}

    read = (_row(reader.context(text)) for text in numbers)
    contexts = table_of(read, _CONTEXT, f"{content} contexts", cache_dir)
    texts = _Texts(contexts)

    def read_questions() -> Iterator[dict[str, Any]]:
        for row_number, row in enumerate(rows, 1):
            number = numbers[row["context"]]
            [context] = texts.fetch(np.array([number]))
            spans = _answers(f"question {row_number}", row, context)
            first = spans[0] if spans else TokenSpan(-1, -1, False)
            answered = max(row["starts"]) >= 0 if row["answers"] else None
            values = map(int, (number, _ANSWERED[answered], *first))
            statistics = dict(zip(_NUMBERS, values, strict=True))
            places = [token for span in dict.fromkeys(s[:2] for s in spans) for token in span]
            yield {**_row(reader.question(row["question"])), **statistics, "spans": places}

    return table_of(read_questions(), _QUESTION, f"{content} questions", cache_dir), contexts


def _row(read: ReadText) -> dict[str, Any]:
    return {"tokens": np.concatenate(read[:4]), "words": " ".join(read.words)}


def _answers(name: str, row: dict[str, Any], context: ReadText) -> list[TokenSpan]:
    """Return the token spans of a question's answers, omitting answers that have no token."""
    spans = []
    for answer, start in zip(row["answers"], row["starts"], strict=True):
        if start < 0:
            continue
        text = row["context"][start : start + len(answer)]
        if text != answer:
            raise UserError(
                f"{name}: the answer {answer!r} must begin at character {start} of its "
                f"context, got {text!r}"
            )
        spans.append(find_span(context, *trimmed(answer, start)))
    return [span for span in spans if span is not None]


class _Texts:
    """Texts as ids in a memory-mapped table."""

    def __init__(self, table: datasets.Dataset) -> None:
        self._tokens = Lists(table, "tokens")  # ids, begins, ends and word, concatenated
        self._words = table.data.column("words")
        self.lengths = self._tokens.lengths // 4

    def fetch(self, rows: Ints) -> list[ReadText]:
        texts = []
        for tokens, row in zip(self._tokens.fetch(rows), rows.tolist(), strict=True):
            ids, begins, ends, word = tokens.reshape(4, -1)
            texts.append(ReadText(ids, begins, ends, word, self._words[row].as_py().split()))
        return texts


class SpanDataset(TokenRows[SpanBatch]):
    """Windows of a split.

    Args:
        questions, contexts: from `tokenize_questions`.
        drops: True to leave out questions that are too long or have an empty side (training);
            False to truncate long ones and read all (validation).
    """

    def __init__(
        self,
        questions: datasets.Dataset,
        contexts: datasets.Dataset,
        options: SpanOptions,
        drops: bool,
    ) -> None:
        self.options = options
        self._questions, self._contexts = _Texts(questions), _Texts(contexts)
        self._context, self._answered, self._first, self._last, exact = (
            questions.data.column(name).to_numpy() for name in _NUMBERS
        )
        sizes, tokens = self._questions.lengths, self._contexts.lengths[self._context]
        long, empty = sizes > options.max_question, (sizes == 1) | (tokens == 0)
        selected = np.flatnonzero(~(long | empty)) if drops else np.arange(len(sizes))
        place, self.starts = options.pieces(tokens[selected])
        self.rows = selected[place]
        self._stops = np.minimum(self.starts + options.window, tokens[self.rows])
        first, last = self._first[self.rows], self._last[self.rows]
        holds = (first >= 0) & (self.starts <= first) & (last < self._stops)
        self.source_lengths = self._stops - self.starts
        self.target_lengths = np.minimum(sizes[self.rows], options.max_question)
        answered, held = np.sum(self._first[selected] >= 0), len(np.unique(self.rows[holds]))
        inexact = np.sum((self._answered[selected] > 0) & (exact[selected] == 0))
        self._total = len(sizes)
        self._spans = Lists(questions, "spans")
        self._counts = [
            (long.sum(), f"{'dropped' if drops else 'truncated'}: question too long"),
            (empty.sum(), ("dropped: " if drops else "with an ") + "empty question or context"),
            (inexact, "with an answer that begins or ends inside a token (extended to the token)"),
            (answered - held, "whose first answer fits in no window"),
            (
                np.sum(self._answered[selected] < 0),
                "whose answers are not in the context (not in the loss)",
            ),
        ]

    def batch(self, places: Sequence[int]) -> SpanBatch:
        return collate_windows(self.windows(places))

    def windows(self, places: Sequence[int]) -> list[Window]:
        """Return some windows. Args: places: B numbers from 0 to N - 1."""
        rows = self.rows[np.asarray(places)]
        questions = self._questions.fetch(rows)
        contexts = self._contexts.fetch(self._context[rows])
        spans = [tokens.reshape(-1, 2).tolist() for tokens in self._spans.fetch(rows)]
        windows = []
        rows_read = zip(places, rows.tolist(), questions, contexts, spans, strict=True)
        for place, row, question_text, read, answer_spans in rows_read:
            start, stop = int(self.starts[place]), int(self._stops[place])
            answers = [TokenSpan(a, b, True) for a, b in answer_spans if start <= a and b < stop]
            reference_answers = answers if self._answered[row] >= 0 else None
            question = question_text.cut(self.options.max_question)
            windows.append(Window(question, read, start, stop, reference_answers, row))
        return windows

    @property
    def advice(self) -> str:
        long = self._counts[0][0]
        return "raise loader.max_question" if long else "use questions and contexts with text"

    def summary(self, split: str) -> str:
        line = f"{self._total:,} {split} questions in {len(self):,} windows"
        return "; ".join([line, *(f"{count:,} {words}" for count, words in self._counts if count)])
