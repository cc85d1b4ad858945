"""Windows of a context as a model read them, with its attention."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from torch.nn import Module, ModuleDict

from seqattn.analysis.capture import capture
from seqattn.extras.answers.span_batch import SpanBatch
from seqattn.extras.answers.span_search import ReadWindow, SpanSearch
from seqattn.generation.base import inference
from seqattn.tokens import PAD


class WindowReading(NamedTuple):
    """One window: its spans, the ids of both sides, and its row in captured attention weights."""

    read: ReadWindow
    question: list[int]
    context: list[int]
    maps: Mapping[str, Any]
    row: int


def read_windows(
    model: Module, search: SpanSearch, batches: Iterable[SpanBatch]
) -> list[WindowReading]:
    """Read a question with each window of its context. Args: batches: of the windows."""
    windows: list[WindowReading] = []
    attention = dict(model.named_children()).get("question_attention")
    shown = ModuleDict({"question_attention": attention} if attention else {})
    with inference(model) as device:
        for batch in batches:
            with capture(shown) as maps:
                scores = model(batch.to(device))
            for row, read in enumerate(search.read(batch, scores)):
                windows.append(WindowReading(read, *_real(batch, row), maps, row))
    return windows


def _real(batch: SpanBatch, row: int) -> tuple[list[int], list[int]]:
    """Return the ids of a row's question and window, without padding."""
    sides = batch.question[row], batch.context[row]
    question, context = ([int(token) for token in side if token != PAD] for side in sides)
    return question, context
