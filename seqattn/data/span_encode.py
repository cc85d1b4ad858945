"""Questions to be answered as batches of windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seqattn.data.bucketing import BatchLimits
from seqattn.data.span_batch import SpanBatch, Window, collate_windows
from seqattn.data.span_text import TextReader
from seqattn.data.spans import WindowLimits
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError


class SpanEncoder:
    """Reads any questions on any contexts into batches; needs no data set.

    Args:
        tokenizer: of the model.
        windows: how long contexts are read; a longer question is cut.
        limits: what a batch may hold.

    Attributes:
        cut: questions that were longer than `windows.max_question` so far.
    """

    def __init__(
        self, tokenizer: Tokenizer, windows: WindowLimits, limits: BatchLimits | None = None
    ) -> None:
        self.reader = TextReader(tokenizer)
        self.windows = windows
        self.limits = limits or BatchLimits()
        self.cut = 0

    def __call__(self, questions: Sequence[str], contexts: Sequence[str]) -> Iterator[SpanBatch]:
        """Gives the windows of N questions, the longest first.

        Args:
            questions: N.
            contexts: the context of each.

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
        read = [self._windows(*pair) for pair in enumerate(zip(questions, contexts, strict=True))]
        read.sort(key=lambda windows: (-len(windows), -windows[0].stop))
        return self._batches([window for windows in read for window in windows])

    def _windows(self, row: int, texts: tuple[str, str]) -> list[Window]:
        question, context = self.reader.question(texts[0]), self.reader.context(texts[1])
        self.cut += len(question.ids) > self.windows.max_question
        return self.windows.windows(self.windows.cut(question), context, None, row)

    def _batches(self, windows: Sequence[Window]) -> Iterator[SpanBatch]:
        batch: list[Window] = []
        longest = 0
        for window in windows:
            longer = max(longest, window.stop - window.start, len(window.question.ids))
            if batch and len(batch) >= self.limits.rows(longer):
                yield collate_windows(batch)
                batch, longer = [], max(window.stop - window.start, len(window.question.ids))
            batch.append(window)
            longest = longer
        if batch:
            yield collate_windows(batch)
