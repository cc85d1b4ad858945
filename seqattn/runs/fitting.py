"""What training takes beside its settings: data, model, task, and what is shown of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from lightning import Callback
from matplotlib.figure import Figure

from seqattn.analysis.callbacks import HeatmapCallback
from seqattn.bundle.architecture import Vocabularies
from seqattn.tasks.base import Optimization
from seqattn.training.callbacks import SampleTexts

if TYPE_CHECKING:
    from pathlib import Path

    from seqattn.runs.train import Training
    from seqattn.training.callbacks import Throughput


class Fitting(ABC):
    """What training takes: data from the start, model and task once it is assembled.

    Args:
        run: its settings.
    """

    data: Any
    """The Lightning data module."""
    model: Any
    task: Any
    """The Lightning module."""
    throughput: Throughput
    generation: Any
    """The search, as the bundle is to have it."""

    def __init__(self, run: Training) -> None:
        self.run = run
        self.generation = run.generation

    def make_model(self) -> None:
        """Makes the model over the vocabularies of the data."""
        tokenizer = self.data.tokenizer
        sizes = Vocabularies(tokenizer.source_size, tokenizer.target_size, tokenizer.joint)
        self.model = self.run.architecture.build(sizes)

    @abstractmethod
    def make_task(self) -> None:
        """Makes the task around the model, once the data is set up."""

    def optimization(self) -> Optimization:
        """How the weights of the model move."""
        run, task = self.run, self.run.task
        found = Optimization(
            run.optimizer, run.schedule(), task.label_smoothing, task.teacher_forcing
        )
        found.optimizer(self.model, fused=False)  # refuses its values before the run begins
        return found

    def callbacks(self, home: Path) -> list[Callback]:
        """Those that show samples and heatmaps after each validation. Args: home: for files."""
        return [
            SampleTexts(self.samples, home / "samples"),
            HeatmapCallback(self.draw, home / "heatmaps"),
        ]

    @abstractmethod
    def longest(self) -> list[tuple[str, str, int, int | None]]:
        """What must fit the model's positions: its name, its key, its tokens, and their limit."""

    @abstractmethod
    def scores(self, count: int | None) -> dict[str, Any]:
        """Scores of the model's own outputs on the validation split, or its first `count` rows."""

    @abstractmethod
    def samples(self) -> list[tuple[str, str, str]]:
        """Source, output and reference of some rows of the last validation."""

    @abstractmethod
    def draw(self) -> Figure | None:
        """Where the model looks in the first row of the validation split that it can read."""
