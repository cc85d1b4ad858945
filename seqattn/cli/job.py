"""What a run does that depends on what it learns from: pairs of texts, or questions with spans."""

from pathlib import Path
from typing import Any, Protocol

from lightning import Callback
from torch import nn

from seqattn.cli.fitting import learns
from seqattn.cli.pairs import PairsJob
from seqattn.cli.spans import SpansJob
from seqattn.data.module import Seq2SeqData
from seqattn.data.span_module import SpanData
from seqattn.models.base import Seq2SeqModel
from seqattn.models.span import SpanModel
from seqattn.tasks.base import SummedTask
from seqattn.training.callbacks import Throughput

Config = dict[str, Any]
RunData = Seq2SeqData | SpanData


class Job(Protocol):
    """The part of a run that knows what it learns from."""

    @property
    def task(self) -> SummedTask:
        """What is trained."""

    @property
    def throughput(self) -> Throughput:
        """What counts its tokens."""

    def quiet(self) -> None:
        """From now on validation gives losses alone."""

    def tellers(self, run_dir: Path) -> list[Callback]:
        """Callbacks that show samples and pictures after each validation."""

    def scores(self, count: int | None) -> Config:
        """Scores of the model's own outputs on the validation split, or its first `count` rows."""


def build_job(config: Config, data: RunData, model: nn.Module) -> Job:
    """The job of a resolved configuration."""
    if learns(config) == "spans":
        assert isinstance(data, SpanData)
        assert isinstance(model, SpanModel)
        return SpansJob(config, data, model)
    assert isinstance(data, Seq2SeqData)
    assert isinstance(model, Seq2SeqModel)
    return PairsJob(config, data, model)
