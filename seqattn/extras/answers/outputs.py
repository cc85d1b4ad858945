"""Answers of a bundle to the questions of a split, with the time taken."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from seqattn.bundle.outputs import Outputs
from seqattn.data.lines import write_lines
from seqattn.extras.answers.scorers import best_threshold
from seqattn.extras.answers.span_batch import Questions
from seqattn.extras.answers.span_search import Answered
from seqattn.storage import write_json


@dataclass(frozen=True)
class Answers(Outputs):
    """Answers to questions, with all answers of the search."""

    unit = "questions"
    rows: Questions
    ranked: list[Answered] = field(default_factory=list)

    @classmethod
    def of(cls, rows: Questions, ranked: list[Answered], seconds: float) -> "Answers":
        """Return outputs with the best answer to each question."""
        return cls(rows, [answered.best for answered in ranked], seconds, ranked=ranked)

    @property
    def best(self) -> dict[str, str]:
        """Best answer to each question by its id, "" for none."""
        return dict(zip(self.rows.ids, self.texts, strict=True))

    @property
    def no_answer(self) -> dict[str, float]:
        """Probability that a question has no answer, by its id."""
        return {n: answer.no_answer for n, answer in zip(self.rows.ids, self.ranked, strict=True)}

    def within(self, threshold: float) -> "Answers":
        """Return a copy without answers where the probability of none exceeds a threshold."""
        return self.of(self.rows, [one.within(threshold) for one in self.ranked], self.seconds)

    def best_threshold(self) -> float:
        """Return the best threshold on the probability of no answer."""
        gold = dict(zip(self.rows.ids, self.rows.references, strict=True))
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
