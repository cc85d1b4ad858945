"""What a bundle makes of many texts or questions, and how long it takes."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from seqattn.bundle.bundle import SpanBundle, TextBundle
from seqattn.data.span_batch import Questions
from seqattn.generation.base import Hypothesis, Progress
from seqattn.generation.span_search import Answered
from seqattn.generation.windows import generate_from_windows
from seqattn.metrics.qa import QaScorer, best_threshold
from seqattn.metrics.text import TextScore

Found = list[list[Hypothesis]]
Rank = Callable[[Sequence[str], Found], Found]


class Outputs(NamedTuple):
    """What a bundle made of some sources: texts, target tokens with their ends, and how long."""

    texts: list[str]
    tokens: int
    seconds: float


def outputs_for(
    bundle: TextBundle,
    search: Any,
    sources: Sequence[str],
    progress: Progress | None = None,
    rank: Rank | None = None,
) -> Outputs:
    """The best output for every source.

    Args:
        progress: called after each batch.
        rank: gives the hypotheses of each line in another order.
    """
    began = time.perf_counter()
    read = bundle.lines(sources)
    encoded = bundle.encode(read.lines)
    found = generate_from_windows(bundle.generator(search), encoded, read.texts, progress)
    if rank is not None:
        found = rank(read.lines, found)
    seconds = time.perf_counter() - began
    texts = read.join(bundle.tokenizer.decode_target([best[0].ids for best in found]))
    return Outputs(texts, sum(len(best[0].ids) + 1 for best in found), seconds)


class Answers(NamedTuple):
    """What a bundle answered to some questions, and in how many seconds."""

    asked: Questions
    found: list[Answered]
    seconds: float

    @property
    def best(self) -> dict[str, str]:
        """The best answer to each question by its id, "" for none."""
        texts = (answered.answers[0].text if answered.answers else "" for answered in self.found)
        return dict(zip(self.asked.ids, texts, strict=True))

    @property
    def no_answer(self) -> dict[str, float]:
        """The probability of each question by its id that it has no answer."""
        return {n: one.no_answer for n, one in zip(self.asked.ids, self.found, strict=True)}

    def scores(self, scorer: QaScorer) -> list[TextScore]:
        """How right the best answers are."""
        return scorer.score(self.best, self._gold)

    def best_threshold(self) -> float:
        """The probability of no answer above which questions are best left unanswered."""
        return max(0.0, best_threshold(self.best, self._gold, self.no_answer).value)

    @property
    def _gold(self) -> dict[str, list[str]]:
        return dict(zip(self.asked.ids, self.asked.answers, strict=True))


def answers_to(
    bundle: SpanBundle, search: Any, asked: Questions, progress: Progress | None = None
) -> Answers:
    """The answers to every question; `progress` is called after each."""
    began = time.perf_counter()
    found = bundle.answerer(search).answer(asked.questions, asked.contexts, progress)
    return Answers(asked, found, time.perf_counter() - began)
