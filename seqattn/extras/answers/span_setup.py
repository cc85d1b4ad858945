"""Setup of training for extractive question answering."""

from dataclasses import replace
from typing import Any

from seqattn.extras.answers.span_data import SpanData
from seqattn.extras.answers.span_task import SpanTask, span_validation
from seqattn.generation.base import Progress
from seqattn.metrics.text import named
from seqattn.screen import progress
from seqattn.training.setup import Setup
from seqattn.training.tasks.settings import Validation


class SpanSetup(Setup):
    """Setup of training for extractive question answering.

    Its bundle gets the best threshold for no answer if the validation split has questions without
    an answer.
    """

    data_type, task_type = SpanData, SpanTask
    tokens = ("context tokens", "context_tokens")
    sides = (("window", "loader.window"), ("question", "loader.max_question"))
    validated_by = ""

    def scored_lengths(self) -> dict[str, int]:
        return {}  # longer ones are read in windows

    def validation(self) -> Validation:
        return span_validation(self.bundle.answerer(), lambda: self.rows)

    def task_settings(self) -> dict[str, Any]:
        task: Any = self.run.task
        return {"every_answer": task.every_answer}

    def final_scores(self) -> dict[str, Any]:
        if "val" not in self.scored and not all(
            self.rows.references
        ):  # the threshold is the bundle's
            with progress("finding the threshold", self.bundle.unit) as advance:
                self.scores("val", self.rows, self.run.task.validation.sentences or None, advance)
        return super().final_scores()

    def scores(
        self, split: str, rows: Any, count: int | None, on_progress: Progress
    ) -> dict[str, Any]:
        search: Any = self.run.generation
        answers = self.bundle.outputs(
            rows.first(count), replace(search, threshold=1.0), on_progress
        )
        if split == "val" and not all(answers.rows.references):
            self.bundle.config["generation"]["threshold"] = answers.best_threshold()
        answers = answers.within(self.bundle.search().threshold)
        return named(answers.scores(self.run.task.scorer), split)

    def samples(self) -> list[tuple[str, str, str]]:
        questions, none = self.rows.sources, "(no answer)"
        return [
            (questions[s.row], s.hypothesis or none, " | ".join(s.references) or none)
            for s in self.task.samples
        ]
