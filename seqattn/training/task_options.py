"""What a run's task decides: the data that it reads, the model that it trains, how it is scored."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from seqattn.bundle.nodes import import_path
from seqattn.checking import BadValue, CountOrNone, shown
from seqattn.errors import UserError
from seqattn.metrics.text import lower_is_better
from seqattn.ops.cross_entropy import LossTerms
from seqattn.roles import Role
from seqattn.training.forcing import TeacherForcing

LOSSES: Mapping[str, str] = {
    "val/loss": "min",
    "val/nll": "min",
    "val/perplexity": "min",
    "val/accuracy": "max",
}


def mode_of(monitor: str, scorer: Any) -> str:
    """Which way what checkpoints are chosen by is better: min or max."""
    lower = lower_is_better(scorer, monitor.removeprefix("val/"))
    return LOSSES.get(monitor, "min" if lower else "max")


@dataclass(frozen=True)
class ValidationOptions:
    """How a model's own outputs are scored while it trains.

    Args:
        every: epochs from one time to the next; 0 for never.
        sentences: the first rows of the validation split that are scored; 0 for all.
        attention_health: whether entropy, mass on `</s>`, dead and uniform heads of every attention
            are logged, for the first sentences of the split.
    """

    every: CountOrNone = 1
    sentences: CountOrNone = 200
    attention_health: bool = True


@dataclass(frozen=True)
class FinalOptions:
    """How a bundle's outputs are scored when training is over.

    Args:
        sentences: the first rows of a split that are scored; 0 for all.
        splits: val, test or both.
    """

    sentences: CountOrNone = 0
    splits: list[Literal["val", "test"]] = field(default_factory=lambda: ["val"])


@dataclass(frozen=True)
class TaskOptions(LossTerms):
    """A task as a run is told of it.

    Args:
        name: what its runs go by, unless told otherwise.
        scorer: how outputs are compared with their references.
        teacher_forcing: share of target tokens that a recurrent decoder is given in training.
        validation: how outputs are scored while it trains.
        final: how they are scored in the end; None for their losses alone.
        label_smoothing, r_drop: as `LossTerms`.
    """

    reads: ClassVar[str]
    """What the data has to hold, as its source says: pairs or questions."""
    output: ClassVar[str]
    """What the model gives, as its configuration, batches and search say: text or spans."""
    batches: ClassVar[str]
    """What the loader makes of the data: pairs or spans."""
    setup: ClassVar[str]
    """Path of its `Setup`, which brings Lightning and is imported by a training alone."""
    losses: ClassVar[Mapping[str, str]] = LOSSES
    """What is measured of a loss, and which way is better: min or max."""

    name: str
    scorer: Annotated[Any, Role.SCORE]
    teacher_forcing: TeacherForcing = field(default_factory=TeacherForcing)
    validation: Annotated[ValidationOptions, Role.SCORE] = field(default_factory=ValidationOptions)
    final: Annotated[FinalOptions | None, Role.SCORE] = field(default_factory=FinalOptions)

    def __post_init__(self) -> None:
        if not hasattr(self.scorer, "score"):
            came = f"got {shown(self.scorer)}"
            raise BadValue("scorer", f"must be a choice with keys of its own, {came}")

    @property
    def monitors(self) -> dict[str, str]:
        """All that a checkpoint can be the best by, and which way is better: min or max."""
        names = [f"val/{name}" for name in self.scorer.logged]
        return {**self.losses, **{name: mode_of(name, self.scorer) for name in names}}

    @classmethod
    def source(cls, data: Any) -> Any:
        """What the task takes from a source of data."""
        return data


class TextGeneration(TaskOptions):
    """A text in, a text out."""

    reads = "pairs"
    output = "text"
    batches = "pairs"
    setup = "seqattn.training.tasks.text_setup.TextSetup"


class GenerativeAnswering(TextGeneration):
    """A question with its context in, an answer in the model's own words out."""

    reads = "questions"

    @classmethod
    def source(cls, data: Any) -> Any:
        from seqattn.data.squad import AnswerPairs  # `datasets` takes seconds to import

        return AnswerPairs(data)


@dataclass(frozen=True)
class ExtractiveAnswering(TaskOptions):
    """A question with its context in, a span of the context out.

    Args:
        every_answer: whether the probability of all right answers together is learnt, in place of
            the first one's; the rest as `TaskOptions`.
    """

    reads = "questions"
    output = "spans"
    batches = "spans"
    setup = "seqattn.training.tasks.span_setup.SpanSetup"
    losses: ClassVar[Mapping[str, str]] = {"val/loss": "min"}

    every_answer: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        threshold = getattr(self.scorer, "threshold", 1.0)
        if threshold != 1.0:
            found = "training finds generation.threshold on the validation split"
            raise BadValue("scorer.threshold", f"must be left out, {found}; got {threshold:g}")


def task_class(config: Mapping[str, Any]) -> type[TaskOptions]:
    """The task that a bundle was trained for. Args: config: the bundle's."""
    node = config.get("task")
    found = import_path(node["_target_"], "task") if isinstance(node, dict) else TextGeneration
    if not isinstance(found, type) or not issubclass(found, TaskOptions):
        raise UserError("the bundle's task is none; train again")
    return found
