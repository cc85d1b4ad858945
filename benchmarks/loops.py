"""Training loops: written by hand, our own step, our step under Lightning."""

import logging
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import torch
from lightning import Trainer
from lightning.pytorch.callbacks import LambdaCallback
from torch import nn
from torch.optim import AdamW, Optimizer
from torch.utils.data import DataLoader

from benchmarks.suite import Sample, timed
from benchmarks.transformer_models import parameters_of
from seqattn.data.batch import Batch
from seqattn.models.base import Seq2SeqModel
from seqattn.ops.cross_entropy import LossTerms
from seqattn.tokens import PAD
from seqattn.training.optim import adamw
from seqattn.training.report import Throughput
from seqattn.training.schedules import constant
from seqattn.training.tasks.seq2seq import Seq2SeqTask
from seqattn.training.tasks.settings import Optimization

SMOOTHING = 0.1
"""Label smoothing of every contestant."""


class TrainingLoop(ABC):
    """Training of a model on batches, a step each, in fp32 or under bf16 autocast."""

    def __init__(self, model: nn.Module, optimizer: Optimizer, precision: str) -> None:
        self.model, self.optimizer, self.precision = model, optimizer, precision
        self.autocast = torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16")
        self.parameters = parameters_of(model)
        self.losses: list[float] = []
        """Mean loss per token of every step."""

    def run(self, batches: Iterable[Batch]) -> Sample:
        """Train on the batches; units are real target tokens."""
        self.model.train()
        return timed(lambda: sum(map(self._step, batches)))

    def _step(self, batch: Batch) -> int:
        self.optimizer.zero_grad()
        self.losses.append(self.backward(batch))
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return batch.target_tokens

    @abstractmethod
    def backward(self, batch: Batch) -> float:
        """Compute the gradients of the mean loss per token and return the loss."""


class PlainLoop(TrainingLoop):
    """Forward, `nn.CrossEntropyLoss`, backward, clip, AdamW with its defaults, and repeat.

    The model maps sources (B, S) and target inputs (B, T) to logits (B, T, V).
    """

    def __init__(self, model: nn.Module, precision: str = "fp32", lr: float = 1e-3) -> None:
        super().__init__(model, AdamW(model.parameters(), lr=lr), precision)
        self.criterion = nn.CrossEntropyLoss(label_smoothing=SMOOTHING, ignore_index=PAD)

    def backward(self, batch: Batch) -> float:
        with self.autocast:
            logits = self.model(batch.source, batch.target_input)
            loss = self.criterion(logits.view(-1, logits.shape[-1]), batch.target_output.view(-1))
        loss.backward()
        return loss.item()


class OwnLoop(TrainingLoop):
    """Our training step, called by a plain loop as Lightning would.

    `Seq2SeqTask.loss`, backward, gradients divided by the tokens, clipping, fused AdamW.
    """

    def __init__(self, model: Seq2SeqModel, precision: str = "fp32", lr: float = 1e-3) -> None:
        super().__init__(model, adamw(model, lr=lr), precision)
        optimization = Optimization(
            lambda model, fused: self.optimizer,
            constant(1),
            terms=LossTerms(label_smoothing=SMOOTHING),
            clip=1.0,
        )
        self.task = Seq2SeqTask(model, optimization)

    def backward(self, batch: Batch) -> float:
        with self.autocast:
            sums = self.task.loss(batch)
        sums.smoothed.backward()
        scale = 1.0 / float(sums.tokens)
        torch._foreach_mul_([p.grad for p in self.model.parameters() if p.grad is not None], scale)
        return float(sums.smoothed.detach()) * scale


class LightningLoop(OwnLoop):
    """Our training step under Lightning: a `Trainer.fit` per round, with the clock of real runs.

    Timed from the epoch's start to the end of its last step, including fetching and hooks, but not
    the set-up of a fit, which a real run pays once.
    """

    def run(self, batches: Iterable[Batch]) -> Sample:
        for name in ("lightning.pytorch", "lightning.fabric"):
            logging.getLogger(name).setLevel(logging.ERROR)
        for message in (".*not have many workers.*", ".*no `val_dataloader`.*", ".*treespec.*"):
            warnings.filterwarnings("ignore", message=message)
        throughput = Throughput()
        clock = LambdaCallback(
            on_train_epoch_start=lambda *_: throughput.begin_epoch(),
            on_train_batch_start=lambda of, *_: throughput.begin_step(
                of.optimizers[0].param_groups
            ),
            on_train_batch_end=lambda *at: throughput.end_step(at[3], ranks=1),
        )
        trainer = Trainer(
            accelerator="cpu", devices=1, max_epochs=1, callbacks=[clock],
            precision="32-true" if self.precision == "fp32" else "bf16-mixed",
            logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False,
        )  # fmt: skip
        loader: DataLoader[Any] = DataLoader([[batch] for batch in batches], batch_size=None)  # type: ignore[arg-type]

        def fit() -> int:
            trainer.fit(self.task, train_dataloaders=loader)
            return throughput.tokens

        total = timed(fit)
        setting_up = total.seconds - throughput.seconds
        return Sample(throughput.seconds, max(0.0, total.cpu_seconds - setting_up), total.units)
