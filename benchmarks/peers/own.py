"""Transformer of this package: its training step and its searches."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.loops import OwnLoop, TrainingLoop
from benchmarks.suite import Sample
from benchmarks.transformer_models import Shape, own_transformer
from seqattn.data.batch import collate
from seqattn.generation import BeamSearch, GreedySearch, LengthLimit
from seqattn.generation.generator import Generator
from seqattn.ops.int8 import round_weights

Rows = Sequence[Sequence[int]]


class Trained(ABC):
    """Transformer with random weights in a training loop. Args: as `Worker.make`."""

    def __init__(self, shape: dict[str, Any], precision: str, threads: int, workers: int) -> None:
        self.training, self.workers = self.loop(Shape(**shape), precision), workers
        self.model: Any = self.training.model
        self.parameters = self.training.parameters

    @abstractmethod
    def loop(self, shape: Shape, precision: str) -> TrainingLoop:
        """Return the model in its training loop."""

    def train(self, pairs: Sequence[tuple[Rows, Rows]]) -> Sample:
        """Train on batches of sources and targets, each row with its end mark."""
        return self.training.run([collate(*pair, range(len(pair[0]))) for pair in pairs])


class Contestant(Trained):
    """Contestant. Args: as `Worker.make`."""

    def loop(self, shape: Shape, precision: str) -> OwnLoop:
        """Return the model in its training loop."""
        loop = OwnLoop(own_transformer(shape), precision)  # counts parameters before rounding
        if precision == "int8":
            round_weights(loop.model)
        return loop

    def decode_all(self, rows: Rows, beams: int, length: int, batch_size: int) -> int:
        """Decode `length` tokens for every source and return the total."""
        if self.training.precision == "bf16":
            self.model.to(torch.bfloat16)
        options: dict[str, Any] = {
            "limit": LengthLimit(ratio=0.0, extra=length, minimum=length),
            "batch_size": batch_size, "workers": self.workers,
        }  # fmt: skip
        search = GreedySearch(**options) if beams == 1 else BeamSearch(beam_size=beams, **options)
        return sum(
            len(hypotheses[0].ids) for hypotheses in Generator(self.model, search).generate(rows)
        )
