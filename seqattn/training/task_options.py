"""Settings of tasks: the kinds of data and model, and scoring."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, ClassVar, Literal

from seqattn.analysis.word_alignment import Place
from seqattn.checking import BadValue, CountOrNone, NotNegative, shown
from seqattn.errors import UserError
from seqattn.metrics.several import one_scorer
from seqattn.metrics.text import lower_is_better
from seqattn.ops.cross_entropy import LossTerms
from seqattn.roles import Role
from seqattn.settings.nodes import import_path
from seqattn.training.forcing import TeacherForcing

LOSSES: Mapping[str, str] = {
    "val/loss": "min",
    "val/nll": "min",
    "val/perplexity": "min",
    "val/accuracy": "max",
}


def mode_of(monitor: str, scorer: Any) -> str:
    """Return the direction of a checkpoint metric: min or max."""
    lower = lower_is_better(one_scorer(scorer), monitor.removeprefix("val/"))
    return LOSSES.get(monitor, "min" if lower else "max")


@dataclass(frozen=True)
class ValidationOptions:
    """Settings of generation and scoring in validation.

    Args:
        every: epochs between scorings; 0 for never.
        sentences: number of first rows of the validation split that are scored; 0 for all.
    """

    every: CountOrNone = 1
    sentences: CountOrNone = 200


@dataclass(frozen=True)
class FinalOptions:
    """Settings of the bundle's scoring after training.

    Args:
        sentences: number of first rows of a split that are scored; 0 for all.
        splits: val, test or both.
    """

    sentences: CountOrNone = 0
    splits: list[Literal["val", "test"]] = field(default_factory=lambda: ["val"])


@dataclass(frozen=True)
class GuidedAlignment:
    """Settings of guided alignment: a cross-attention is trained on links between words.

    Args:
        links: file with the links of each training pair, see `each_links`; a line may be empty.
            For a mixture, such files by the names of its sources, or True for the links that its
            data has. None for no guidance.
        val_links: likewise of the validation split, to log the loss `val/alignment`.
        weight: factor on the loss; 0.05 in Garg et al. 2019 (arXiv 1909.02074).
        layer, head: as `AlignmentReading`.
        shifted: supervise the step that reads a word, in place of the one that predicts it.
    """

    setup: ClassVar[str] = "seqattn.extras.align.guided.GuidedSetup"
    """Path of the `Setup` of guided training."""

    links: Any = None
    val_links: Annotated[str | None, Role.NOTE] = None
    weight: NotNegative = 0.05
    layer: Place | None = None
    head: Place | None = 0
    shifted: bool = False

    def __post_init__(self) -> None:
        if self.links not in (None, True) and not isinstance(self.links, str | Mapping):
            raise BadValue("links", f"must be a file, or files by sources, got {shown(self.links)}")
        if isinstance(self.links, Mapping) and {*map(type, self.links.values())} != {str}:
            raise BadValue("links", f"must name files, got {shown(self.links)}")
        changed = [one.name for one in fields(self) if getattr(self, one.name) != one.default]
        if self.links is None and changed:
            raise BadValue(changed[0], "has no effect without links; set links=FILE", "links")


@dataclass(frozen=True)
class TextGeneration(LossTerms):
    """Settings of a task: generation of a text from a text, or what a subclass replaces it by.

    Args:
        name: default name of its runs.
        scorer: compares outputs with their references; a list for several.
        teacher_forcing: share of target tokens that a recurrent decoder reads in training.
        validation: scoring of outputs during training.
        final: scoring of outputs after training; None for losses only.
        alignment: training of a cross-attention on links between words.
        copy_letterless: True to copy texts without a letter, such as 42, as translation does; None
            to do so unless most such training pairs have another target.
        label_smoothing, r_drop, simcut, simcut_cutoff: as `LossTerms`.
    """

    reads: ClassVar[str] = "pairs"
    """Required kind of data, as `yields` of its source."""
    redraws: ClassVar[bool] = False
    """True if its source of data must draw pairs anew in each epoch, as `Source.redraws`."""
    output: ClassVar[str] = "text"
    """Kind of output, as `output` of model and search."""
    batches: ClassVar[str] = "pairs"
    """Kind of batches of the loader."""
    setup: ClassVar[str] = "seqattn.training.setup.Setup"
    """Path of its `Setup`, which imports Lightning and is only needed for training."""
    bundle: ClassVar[str] = "seqattn.bundle.bundle.Bundle"
    """Path of the class of its bundles."""
    usage: ClassVar[str] = 'generate("TEXT")'
    """Call of a bundle that its card shows."""
    losses: ClassVar[Mapping[str, str]] = LOSSES
    """Loss metrics, each with its direction: min or max."""

    name: str
    scorer: Annotated[Any, Role.SCORE]
    teacher_forcing: TeacherForcing = field(default_factory=TeacherForcing)
    validation: Annotated[ValidationOptions, Role.SCORE] = field(default_factory=ValidationOptions)
    final: Annotated[FinalOptions | None, Role.SCORE] = field(default_factory=FinalOptions)
    alignment: GuidedAlignment = field(default_factory=GuidedAlignment)
    copy_letterless: Annotated[bool | None, Role.END] = False

    def __post_init__(self) -> None:
        if self.r_drop and self.simcut:
            raise BadValue(
                "r_drop", "and simcut are mutually exclusive; set one of them to 0", "simcut"
            )
        scorers = self.scorer if isinstance(self.scorer, list) else [self.scorer]
        if not (scorers and all(hasattr(one, "score") for one in scorers)):
            came = f"got {shown(self.scorer)}"
            raise BadValue("scorer", f"must be a config node of a scorer class, {came}")
        object.__setattr__(self, "scorer", one_scorer(self.scorer))

    @property
    def monitors(self) -> dict[str, str]:
        """Metrics that can select checkpoints, each with its direction: min or max."""
        names = [f"val/{name}" for name in self.scorer.logged]
        return {**self.losses, **{name: mode_of(name, self.scorer) for name in names}}

    @classmethod
    def source(cls, data: Any) -> Any:
        """Convert a source of data for the task."""
        return data


def task_class(config: Mapping[str, Any]) -> type[TextGeneration]:
    """Return the class of a bundle's task. Args: config: the bundle's configuration."""
    node = config.get("task")
    task = import_path(node["_target_"], "task") if isinstance(node, dict) else TextGeneration
    if not isinstance(task, type) or not issubclass(task, TextGeneration):
        raise UserError("the bundle's task is not valid; retrain")
    return task
