"""What a run does that depends on what it learns from: pairs of texts, or questions with spans."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from lightning import Callback
from matplotlib.figure import Figure

from seqattn.analysis.callbacks import HeatmapCallback
from seqattn.tasks.seq2seq import Seq2SeqTask
from seqattn.tasks.span import SpanTask
from seqattn.training.callbacks import SampleTexts, Throughput

Config = dict[str, Any]


class Job(ABC):
    """The part of a run that knows what it learns from."""

    task: Seq2SeqTask | SpanTask
    """What is trained."""
    throughput: Throughput
    """What counts its tokens."""

    def tellers(self, run_dir: Path) -> list[Callback]:
        """Callbacks that show samples and pictures after each validation."""
        return [
            SampleTexts(self.samples, run_dir / "samples"),
            HeatmapCallback(self.draw, run_dir / "heatmaps"),
        ]

    def quiet(self) -> None:
        """From now on validation gives losses alone."""
        self.task.validation = None

    @abstractmethod
    def scores(self, count: int | None) -> Config:
        """Scores of the model's own outputs on the validation split, or its first `count` rows."""

    @abstractmethod
    def samples(self) -> list[tuple[str, str, str]]:
        """Source, output and reference of some rows of the last validation."""

    @abstractmethod
    def draw(self) -> Figure | None:
        """Where the model looks in the first row of the validation split that it can read."""
