"""Answers of a bundle to one question, and their place in the context."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import ModuleDict

from seqattn.analysis.capture import capture
from seqattn.bundle.span_bundle import SpanBundle
from seqattn.data.span_batch import SpanBatch
from seqattn.data.span_text import cut_words
from seqattn.extras.report.attention_maps import attention_documents
from seqattn.extras.report.document_types import AnswerLookDocument, AttentionDocument, SpanTokens
from seqattn.generation.base import inference
from seqattn.generation.span_search import (
    Answered,
    ReadWindow,
    SpanSearch,
    joined,
    no_answer_score,
)
from seqattn.metrics.qa import f1
from seqattn.tokens import PAD

ANSWERS = 5


class _Window(NamedTuple):
    """Window of a context as the model read it: the pieces of both sides, and attention maps."""

    read: ReadWindow
    question: list[int]
    context: list[int]
    maps: list[AttentionDocument]


@dataclass(frozen=True)
class QuestionLook:
    """Documents of a bundle's answers, one question at a time.

    Args:
        bundle: bundle of a span model.
        search: rules for valid spans.
        tokens: attention maps show at most the first N tokens per side.
    """

    bundle: SpanBundle
    search: SpanSearch
    tokens: int
    score: ClassVar[str] = "F1"
    """Name of an output's score."""
    measure: ClassVar[str] = ""
    """No source use."""

    @classmethod
    def of(
        cls, bundles: Sequence[SpanBundle], search: SpanSearch, methods: Sequence[str], tokens: int
    ) -> list["QuestionLook"]:
        """Return a look into each bundle. Args: as for the class; methods: only for texts."""
        return [cls(bundle, search, tokens) for bundle in bundles]

    def document(self, text: str, answers: Sequence[str], context: str) -> AnswerLookDocument:
        """Return the bundle's answers. Args: answers: correct ones, [] for no answer."""
        windows = self._windows(text, context)
        reads = [window.read for window in windows]
        several = replace(self.search, answers=ANSWERS)
        answered = several.choose(reads, context) if context.strip() else Answered([], 1.0)
        best = answered.answers[0].text if answered.answers else ""
        shown = max(windows, key=lambda window: float(window.read.spans.amax() - window.read.none))
        pieces = self.bundle.tokenizer.source_pieces
        answer_rows: Any = [one._asdict() for one in answered.answers]
        return {
            "question": pieces(shown.question, cut_words(text).text),
            "context": pieces(shown.context),
            "output": best,
            "score": 100 * f1(best, answers),
            "source_use": None,
            "notes": self._notes(windows, shown),
            "attentions": shown.maps,
            "answers": answer_rows,
            "no_answer": answered.no_answer,
            "tokens": span_tokens(reads),
        }

    def _windows(self, text: str, context: str) -> list[_Window]:
        windows: list[_Window] = []
        model = self.bundle.model
        attention = dict(model.named_children()).get("question_attention")
        shown = ModuleDict({"question_attention": attention} if attention else {})
        with inference(model) as device:
            for batch in self.bundle.encoder([text], [context]):
                with capture(shown) as maps:
                    scores = model(batch.to(device))
                for row, read in enumerate(self.search.read(batch, scores)):
                    attentions = list(attention_documents(maps, self.tokens, row))
                    windows.append(_Window(read, *_real(batch, row), attentions))
        return windows

    def _notes(self, windows: Sequence[_Window], shown: _Window) -> list[str]:
        notes = []
        if len(windows) > 1:
            notes.append(
                f"read in {len(windows)} windows; showing weights of the one with the most likely "
                "answer"
            )
        if len(shown.context) > self.tokens:
            notes.append(f"attention maps show the first {self.tokens} tokens of each side")
        return notes


def span_tokens(windows: Sequence[ReadWindow]) -> SpanTokens:
    """Compute the probabilities that an answer starts at, ends at and contains each context token.

    They are sums of span probabilities as in `SpanSearch.choose`, normalized over all spans and no
    answer.
    """
    spans, begins, ends = joined(windows)
    none = no_answer_score(windows)
    total = torch.cat((spans.flatten(), none[None])).logsumexp(dim=0)
    probabilities = (spans - total).exp()
    count, width = probabilities.shape
    start = probabilities.sum(dim=1)
    last = torch.arange(count)[:, None] + torch.arange(width)
    end = torch.zeros(count + width, dtype=start.dtype)
    end = end.index_add(0, last.flatten(), probabilities.flatten())[:count]
    within = start.cumsum(dim=0) - end.cumsum(dim=0) + end
    return {
        "begins": begins.tolist(),
        "ends": ends.tolist(),
        "start": _rounded(start),
        "end": _rounded(end),
        "within": _rounded(within.clamp(0.0, 1.0)),
    }


def _real(batch: SpanBatch, row: int) -> tuple[list[int], list[int]]:
    """Return the ids of a row's question and window, without padding."""
    sides = batch.question[row], batch.context[row]
    question, context = ([int(token) for token in side if token != PAD] for side in sides)
    return question, context


def _rounded(numbers: Tensor) -> list[float]:
    return [round(number, 6) for number in numbers.tolist()]
