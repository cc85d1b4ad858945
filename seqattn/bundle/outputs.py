"""Outputs of a bundle for the rows of a split, with the time taken."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from seqattn.data.base import Rows, Texts
from seqattn.data.lines import in_one_line, write_lines
from seqattn.data.span_batch import Questions
from seqattn.generation.base import Hypothesis
from seqattn.generation.span_search import Answered
from seqattn.metrics.qa import best_threshold
from seqattn.storage import write_json

Found = list[list[Hypothesis]]
Rank = Callable[[Sequence[str], Found], Found]


@dataclass(frozen=True)
class Outputs(ABC):
    """Best output for each row, "" for none, and the total seconds."""

    unit: ClassVar[str]
    """Name of the rows, such as sentences."""

    rows: Rows
    texts: list[str]
    seconds: float

    @property
    def rates(self) -> dict[str, float]:
        """Outputs per second, by unit."""
        return {self.unit: len(self.texts) / self.seconds}

    def scores(self, scorer: Any) -> list[Any]:
        """Return a scorer's scores of the outputs."""
        return list(self.rows.score(scorer, self.texts))

    def table(self) -> dict[str, str]:
        """Return the number of outputs and the speed, as rows of a table."""
        return {self.unit: f"{len(self.texts):,} ({self.rates[self.unit]:,.1f} per second)"}

    @abstractmethod
    def write(self, directory: Path) -> None:
        """Write the evaluation files of this kind of output."""


@dataclass(frozen=True)
class TextOutputs(Outputs):
    """Texts, and the number of their target tokens, end marks included."""

    unit = "sentences"
    rows: Texts
    tokens: int

    @property
    def rates(self) -> dict[str, float]:
        return {**super().rates, "tokens": self.tokens / self.seconds}

    def table(self) -> dict[str, str]:
        tokens = f"{self.tokens:,} ({self.rates['tokens']:,.0f} per second)"
        return {**super().table(), "target tokens": tokens}

    def write(self, directory: Path) -> None:
        write_lines(map(in_one_line, self.texts), str(directory / "hypotheses.txt"))
        if self.rows.ids is not None:
            predictions = dict(zip(self.rows.ids, self.texts, strict=True))
            write_json(directory / "predictions.json", predictions)


@dataclass(frozen=True)
class Answers(Outputs):
    """Answers to questions, with all answers of the search."""

    unit = "questions"
    rows: Questions
    ranked: list[Answered]

    @classmethod
    def of(cls, rows: Questions, ranked: list[Answered], seconds: float) -> "Answers":
        """Return outputs with the best answer to each question."""
        return cls(rows, [answered.best for answered in ranked], seconds, ranked)

    @property
    def best(self) -> dict[str, str]:
        """Best answer to each question by its id, "" for none."""
        return dict(zip(self.rows.ids, self.texts, strict=True))

    @property
    def no_answer(self) -> dict[str, float]:
        """Probability that a question has no answer, by its id."""
        return {n: one.no_answer for n, one in zip(self.rows.ids, self.ranked, strict=True)}

    def within(self, threshold: float) -> "Answers":
        """Return a copy without answers where the probability of none exceeds a threshold."""
        return self.of(self.rows, [one.within(threshold) for one in self.ranked], self.seconds)

    def best_threshold(self) -> float:
        """Return the best threshold on the probability of no answer."""
        gold = dict(zip(self.rows.ids, self.rows.answers, strict=True))
        return max(0.0, best_threshold(self.best, gold, self.no_answer).value)

    def table(self) -> dict[str, str]:
        unanswered = sum(not answered.answers for answered in self.ranked)
        return {**super().table(), "unanswered": f"{unanswered:,}"}

    def write(self, directory: Path) -> None:
        """Write the files that the official scorer reads, and all answers."""
        write_json(directory / "predictions.json", self.best)
        write_json(directory / "no_answer.json", self.no_answer)
        each = (
            {"id": name, "answers": [answer._asdict() for answer in answered.answers]}
            for name, answered in zip(self.rows.ids, self.ranked, strict=True)
        )
        lines = (json.dumps(one, ensure_ascii=False) for one in each)
        write_lines(lines, str(directory / "answers.jsonl"))
