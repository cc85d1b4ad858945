"""Settings of the tasks of question answering."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from seqattn.checking import BadValue
from seqattn.training.task_options import TextGeneration

USAGE = 'answer("QUESTION", "CONTEXT")'


class GenerativeAnswering(TextGeneration):
    """Generation of an answer from a question with its context."""

    reads = "questions"
    usage = USAGE
    bundle = "seqattn.extras.answers.bundles.AnsweringBundle"

    @classmethod
    def source(cls, data: Any) -> Any:
        from seqattn.extras.answers.squad import AnswerPairs  # `datasets` takes seconds to import

        return AnswerPairs(data)


@dataclass(frozen=True)
class ExtractiveAnswering(TextGeneration):
    """Extraction of an answer span from the context of a question.

    Args:
        every_answer: True to maximize the total probability of all right answers in place of the
            first one's; the rest as `TextGeneration`.
    """

    reads = "questions"
    usage = USAGE
    output = "spans"
    batches = "spans"
    setup = "seqattn.extras.answers.span_setup.SpanSetup"
    bundle = "seqattn.extras.answers.bundles.SpanBundle"
    losses: ClassVar[Mapping[str, str]] = {"val/loss": "min"}

    every_answer: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_only("r_drop")
        threshold = getattr(self.scorer, "threshold", 1.0)
        if threshold != 1.0:
            tuned = "training tunes generation.threshold on the validation split"
            raise BadValue("scorer.threshold", f"must not be set, as {tuned}; got {threshold:g}")
