"""Our own training step, bare and under Lightning."""

import logging
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from lightning import Trainer
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from seqattn.benchmarks.measure import Sample, timed
from seqattn.benchmarks.shape import RecurrentShape, Shape, parameters_of, seqattn_model
from seqattn.data.batch import Batch
from seqattn.models.base import Seq2SeqModel
from seqattn.tasks.seq2seq import Optimization, Seq2SeqTask
from seqattn.training.callbacks import Throughput
from seqattn.training.optim import adamw
from seqattn.training.schedules import constant


def _this(optimizer: Optimizer, model: nn.Module, fused: bool) -> Optimizer:
    return optimizer


class OwnStep:
    """What Lightning calls in a run, called by a plain loop.

    `Seq2SeqTask.loss`, backward, gradients divided by the tokens, clipping, fused AdamW.

    Args:
        shape: the model's.
        precision: 32, or bf16-mixed for autocast.
        lr: learning rate.
        model: what is trained; None for our Transformer.
    """

    def __init__(
        self,
        shape: Shape | RecurrentShape,
        precision: str = "32",
        lr: float = 1e-3,
        model: Seq2SeqModel | None = None,
    ) -> None:
        if model is None:
            assert isinstance(shape, Shape)
            model = seqattn_model(shape)
        self.model = model
        self.precision = precision
        self.optimizer = adamw(self.model, lr=lr)
        optimization = Optimization(partial(_this, self.optimizer), constant(1), shape.smoothing)
        self.task = Seq2SeqTask(self.model, optimization)
        self.parameters = parameters_of(self.model)
        self.losses: list[float] = []
        """The mean loss per token of every step."""

    def run(self, batches: Sequence[Batch]) -> Sample:
        """Trains on the batches, a step each; the units are real target tokens."""
        self.task.train()
        return timed(lambda: sum(self.step(batch) for batch in batches))

    def step(self, batch: Batch) -> int:
        """One optimizer step; gives its real target tokens."""
        self.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.precision == "bf16-mixed"):
            sums = self.task.loss(batch)
        sums.smoothed.backward()
        scale = 1.0 / float(sums.tokens)
        torch._foreach_mul_([p.grad for p in self.model.parameters() if p.grad is not None], scale)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.losses.append(float(sums.smoothed.detach()) * scale)
        return batch.target_tokens


class OwnRun(OwnStep):
    """The same under Lightning: a `Trainer.fit` a round, with the callback that times real runs.

    Counted from the epoch's start to the end of its last step, so with fetching and hooks, and
    without the set-up of a fit, which a real run pays once. Args: as `OwnStep`.
    """

    def run(self, batches: Sequence[Batch]) -> Sample:
        """Trains on the batches, a step each; the units are real target tokens."""
        throughput = Throughput()
        trainer = _trainer(throughput, self.precision)
        ready: list[Batch] = list(batches)
        loader: DataLoader[Any] = DataLoader(ready, batch_size=None)  # type: ignore[arg-type]

        def fit() -> int:
            trainer.fit(self.task, train_dataloaders=loader)
            return throughput.tokens

        whole = timed(fit)
        setting_up = whole.seconds - throughput.seconds
        return Sample(throughput.seconds, max(0.0, whole.cpu_seconds - setting_up), whole.units)


def _trainer(callback: Throughput, precision: str) -> Trainer:
    """A trainer that says nothing and keeps nothing."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    for message in (".*does not have many workers.*", ".*no `val_dataloader`.*", ".*treespec.*"):
        warnings.filterwarnings("ignore", message=message)
    silent: dict[str, Any] = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    return Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=1,
        precision=precision,  # type: ignore[arg-type]
        gradient_clip_val=1.0,
        callbacks=[callback],
        **silent,
    )
