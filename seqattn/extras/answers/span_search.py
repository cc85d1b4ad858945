"""Search for answers from span scores."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from operator import itemgetter
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol

import torch
from annotated_types import Ge, Le
from torch import Tensor

from seqattn.attention.base import length_key
from seqattn.checking import Count, Share
from seqattn.errors import UserError
from seqattn.extras.answers.span_base import SpanInput, SpanModel, SpanScores, reaching
from seqattn.generation.base import AnySearch, Progress, inference

_CANDIDATES = 60  # number of spans compared by expected F1


class SpanWindows(SpanInput, Protocol):
    """Windows of contexts, with the positions of their tokens."""

    @property
    def begins(self) -> Tensor:
        """Character of the context (B, S) where each token begins."""

    @property
    def ends(self) -> Tensor:
        """Character (B, S) after each token's last; equal to `begins` for empty tokens."""

    @property
    def offset(self) -> Tensor:
        """Index (B,) of each window's first token in its context."""

    @property
    def index(self) -> Tensor:
        """Question numbers (B,); the windows of a question are consecutive."""

    def to(self, device: torch.device) -> "SpanWindows":
        """Return the windows on another device."""


class Answer(NamedTuple):
    """A span of a context: its text, its characters from `start` to `end`, and its probability."""

    text: str
    start: int
    end: int
    probability: float


class Answered(NamedTuple):
    """Answers to one question, most probable first, and the probability of no answer."""

    answers: list[Answer]
    no_answer: float

    @property
    def best(self) -> str:
        """The most probable answer, "" for none."""
        return self.answers[0].text if self.answers else ""

    def plain(self) -> dict[str, Any]:
        """Return the best answer and the alternatives as a dict; "" without offsets for none."""
        entries: list[dict[str, Any]] = [
            {"answer": a.text, "start": a.start, "end": a.end, "probability": a.probability}
            for a in self.answers
        ]
        none = {"answer": "", "start": None, "end": None, "probability": None}
        others = {"others": entries[1:]} if len(entries) > 1 else {}
        return {**(entries[0] if entries else none), "no_answer": self.no_answer, **others}

    def within(self, threshold: float) -> "Answered":
        """Return the result without answers if the probability of none is above `threshold`."""
        return self if self.no_answer <= threshold else Answered([], self.no_answer)


@dataclass(frozen=True)
class SpanSearch(AnySearch):
    """Settings of the search for answers among spans.

    Args:
        max_answer: maximum tokens of an answer.
        answers: number of distinct answers to return.
        threshold: return no answer if its probability is above this, 0 to 1; at 1 every question
            with a non-empty context is answered.
        expected_f1: rank the most probable spans by expected token F1 instead of probability
            (minimum Bayes risk, Kumar and Byrne 2004, N04-1022).
    """

    output: ClassVar[str] = "spans"

    max_answer: Annotated[int, Ge(1), Le(10_000)] = 30
    answers: Count = 1
    threshold: Share = 1.0
    expected_f1: bool = False

    def giving(self, count: int) -> "SpanSearch":
        return replace(self, answers=count)

    def check_scorer(self, scorer: Any) -> None:
        """Raise UserError for a scorer with a threshold, which would not be applied."""
        threshold = getattr(scorer, "threshold", 1.0)
        if threshold != 1.0:
            raise UserError(
                "scorer.threshold does not apply to this search; remove it, and set "
                f"generation.threshold={max(0.0, threshold):g}"
            )

    def read(self, windows: SpanWindows, scores: SpanScores) -> list["ReadWindow"]:
        """Return the log-probabilities of all spans within each window."""
        begins, ends, offset = (x.cpu() for x in (windows.begins, windows.ends, windows.offset))
        blank = ends <= begins  # tokens without characters cannot start or end an answer
        pair = None if scores.pair is None else scores.pair.double()
        scores = SpanScores(scores.start.double(), scores.end.double(), pair)
        spans, none = (x.cpu() for x in scores.spans(self.max_answer))
        last = reaching(torch.zeros(blank.shape).masked_fill(blank, -torch.inf), self.max_answer)
        spans = (spans + last).masked_fill(blank[..., None], -torch.inf)
        return [
            ReadWindow(int(offset[n]), begins[n], ends[n], spans[n], none[n])
            for n in range(len(none))
        ]

    def choose(self, windows: Sequence["ReadWindow"], context: str) -> Answered:
        """Return the answers to a question, from all of its windows.

        A span in several windows gets its largest probability, and "no answer" its smallest over
        the windows; then all spans and "no answer" are normalized to 1. A blank context has no
        answer.
        """
        if not context.strip():
            return Answered([], 1.0)
        spans, begins, ends = joined(windows)
        none = no_answer_score(windows)
        scores = spans.flatten()
        total = float(torch.cat((scores, none[None])).logsumexp(dim=0))
        no_answer = math.exp(none - total)
        if no_answer > self.threshold:
            return Answered([], no_answer)
        answers: dict[str, Answer] = {}
        ranked = _descending(scores, 8 * self.answers)
        if self.expected_f1:
            ranked = chain(_by_expected_f1(spans), ranked)
        for value, index in ranked:
            if value == -math.inf or len(answers) == self.answers:
                break
            first, more = divmod(index, self.max_answer)
            start, end = int(begins[first]), int(ends[first + more])
            text = context[start:end]
            answers.setdefault(text, Answer(text, start, end, math.exp(value - total)))
        return Answered(list(answers.values()), no_answer)

    def token_probabilities(self, windows: Sequence["ReadWindow"]) -> dict[str, Any]:
        """Return the probabilities that an answer starts at, ends at and contains each token of the
        context, and the tokens' characters.

        They are sums of span probabilities as in `choose`, normalized over all spans and no answer.
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


def _rounded(numbers: Tensor) -> list[float]:
    return [round(number, 6) for number in numbers.tolist()]


def no_answer_score(windows: Sequence["ReadWindow"]) -> Tensor:
    """Return the score of "no answer": the minimum over all windows."""
    return torch.stack([window.none for window in windows]).amin()


def _descending(numbers: Tensor, count: int) -> Iterator[tuple[float, int]]:
    """Yield numbers with their indices, largest first, sorting `count` at first and then more."""
    previous = 0
    while previous < len(numbers):
        count = min(count, len(numbers))
        best = numbers.topk(count)
        yield from zip(best.values[previous:].tolist(), best.indices[previous:].tolist())
        previous, count = count, 4 * count


def _by_expected_f1(spans: Tensor) -> Iterator[tuple[float, int]]:
    """Yield log-probabilities of the most probable spans (S, A) with their indices, by expected
    token F1, highest first."""
    scores = spans[spans > -torch.inf]
    indices = (spans > -torch.inf).flatten().nonzero()[:, 0]
    best = scores.topk(min(_CANDIDATES, len(scores)))
    indices = indices[best.indices]
    first = indices // spans.shape[1]
    last, size = first + indices % spans.shape[1], indices % spans.shape[1] + 1
    shared = torch.minimum(last[:, None], last) - torch.maximum(first[:, None], first) + 1
    f1 = 2.0 * shared.clamp(min=0) / (size[:, None] + size)
    order = (f1.double() @ best.values.exp()).argsort(descending=True)
    return zip(best.values[order].tolist(), indices[order].tolist())


class ReadWindow(NamedTuple):
    """Log-probabilities of one window.

    `spans` (S, A) holds that of the span of a+1 tokens from token s at [s, a], `none` that of no
    answer; `begins` and `ends` (S,) are the characters of tokens, `offset` the first token's index.
    """

    offset: int
    begins: Tensor
    ends: Tensor
    spans: Tensor
    none: Tensor


def joined(windows: Sequence[ReadWindow]) -> tuple[Tensor, Tensor, Tensor]:
    """Return spans, begins and ends of all windows, indexed by the tokens of the context."""
    if len(windows) == 1:
        return windows[0].spans, windows[0].begins, windows[0].ends
    length = max(window.offset + len(window.spans) for window in windows)
    spans = windows[0].spans.new_full((length, windows[0].spans.shape[1]), -torch.inf)
    begins, ends = (windows[0].begins.new_zeros(length) for _ in range(2))
    for window in windows:
        part = slice(window.offset, window.offset + len(window.spans))
        spans[part] = spans[part].maximum(window.spans)
        begins[part] = begins[part].maximum(window.begins)  # 0 on padding
        ends[part] = ends[part].maximum(window.ends)
    return spans, begins, ends


@dataclass(frozen=True)
class Answerer:
    """A model and search that answer questions with spans of their contexts.

    Args:
        model: the model.
        encode: function of line-aligned questions and contexts that returns batches of windows.
        search: settings of the search.
    """

    model: SpanModel
    encode: Callable[[Sequence[str], Sequence[str]], Iterable[SpanWindows]]
    search: SpanSearch

    def answer(
        self, questions: Sequence[str], contexts: Sequence[str], progress: Progress | None = None
    ) -> list[Answered]:
        """Answer each question; with an empty context, "no answer" has probability 1.

        Args:
            questions: N questions.
            contexts: N contexts.
            progress: called after each question.

        Raises:
            UserError: a window or question is longer than the model's maximum.
        """
        results = [Answered([], 1.0) for _ in questions]
        with inference(self.model) as device:
            windows = self._read(questions, contexts, device)
            for done, (number, group) in enumerate(groupby(windows, key=itemgetter(0)), 1):
                read = [window for _, window in group]
                results[number] = self.search.choose(read, contexts[number])
                if progress is not None:
                    progress(done, len(questions))
        return results

    def _read(
        self, questions: Sequence[str], contexts: Sequence[str], device: torch.device
    ) -> Iterator[tuple[int, ReadWindow]]:
        """Yield each window's question number and log-probabilities."""
        limit = self.model.max_source_length
        for windows in self.encode(questions, contexts):
            longest = max(windows.context.shape[1], windows.question.shape[1])
            if limit is not None and longest > limit:
                raise UserError(
                    f"a window or question has {longest} tokens, but this model reads at most "
                    f"{limit}; lower loader.window and loader.max_question, or train with a larger "
                    f"{length_key(self.model, limit)}"
                )
            read = self.search.read(windows, self.model(windows.to(device)))
            yield from zip(windows.index.tolist(), read, strict=True)
