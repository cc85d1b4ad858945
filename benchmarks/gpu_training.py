"""Training runs of the GPU check: one stopped and resumed, and Lightning's loop, timed."""

import io
import tempfile
import time
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import lightning
import torch
from torch import Tensor, nn
from torch.optim import AdamW
from torch.utils.data import DataLoader

from benchmarks.gpu_machine import Machine
from benchmarks.gpu_models import batch, loss_of, transformer
from seqattn.data.batch import Batch
from seqattn.models.base import Seq2SeqModel
from seqattn.training.averaging import MovingAverage
from seqattn.training.lightning_trainer import made_trainer
from seqattn.training.muon import muon
from seqattn.training.optim import adamw
from seqattn.training.schedules import inverse_sqrt
from seqattn.training.tasks.seq2seq import Seq2SeqTask
from seqattn.training.tasks.settings import Optimization, draw_seed
from seqattn.training.trainer_options import TrainerOptions

OPTIMIZERS: dict[str, Any] = {"adamw": partial(adamw, lr=1e-4), "muon": partial(muon, lr=1e-4)}


def resumed(machine: Machine, strict: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return the weights after six steps of two identical runs, and of one stopped after three.

    Args:
        machine: the machine to train on.
        strict: use only deterministic algorithms of PyTorch.
    """
    torch.use_deterministic_algorithms(strict)
    try:
        uninterrupted, again, stopped = (_trained(machine, stops) for stops in (False, False, True))
        return uninterrupted, again, stopped
    finally:
        torch.use_deterministic_algorithms(False)


def _trained(machine: Machine, stops: bool) -> Tensor:
    def fresh() -> tuple[Seq2SeqModel, AdamW]:
        dim = 64 if machine.tiny else 256
        model = transformer(dim=dim, dropout=0.1).to(machine.device).train()
        return model, adamw(model, lr=1e-3)

    model, optimizer = fresh()
    _steps(machine, model, optimizer, range(3))
    if stops:
        saved = io.BytesIO()
        torch.save([model.state_dict(), optimizer.state_dict()], saved)
        saved.seek(0)
        model, optimizer = fresh()
        torch.rand(17, device=machine.device)  # a new process has a different random state
        weights, moments = torch.load(saved, map_location="cpu", weights_only=True)
        model.load_state_dict(weights)
        optimizer.load_state_dict(moments)
    _steps(machine, model, optimizer, range(3, 6))
    return torch.cat([weight.detach().flatten().cpu() for weight in model.parameters()])


def _steps(machine: Machine, model: Seq2SeqModel, optimizer: AdamW, numbers: range) -> None:
    sizes = (4, 9) if machine.tiny else (32, 60)
    for step in numbers:
        torch.manual_seed(draw_seed(1, 0, step, 0))
        with torch.autocast(machine.device.type, dtype=torch.bfloat16):
            loss = loss_of(model, batch(*sizes, seed=step).to(machine.device))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


class Fitted(NamedTuple):
    """Result of Lightning's loop: seconds per step and synchronizations, in its second half, and
    the number of sizes of batches that were captured."""

    seconds: float
    waits: list[str]
    sizes: int


class _Clock(lightning.Callback):
    """Timer of the second half of `steps`, with warnings of synchronizations in it if `watches`."""

    def __init__(self, machine: Machine, steps: int, watches: bool) -> None:
        self.machine, self.steps = machine, steps
        self.watches = watches and not machine.tiny
        self.ends: list[float] = []

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step not in (self.steps // 2, self.steps):
            return
        self._watch("default")
        self.machine.wait()
        self.ends.append(time.perf_counter())
        if trainer.global_step < self.steps:
            self._watch("warn")

    def _watch(self, mode: str) -> None:
        if self.watches:
            torch.cuda.set_sync_debug_mode(mode)


def fitted(
    machine: Machine,
    model: Seq2SeqModel,
    batches: Sequence[Batch],
    steps: int,
    precision: Any = None,
    optimizer: str = "adamw",
    watches: bool = False,
    averages: bool = False,
    **options: Any,
) -> Fitted:
    """Train our task with Lightning's loop. Args: options: further ones of `TrainerOptions`."""
    task = Seq2SeqTask(model, Optimization(OPTIMIZERS[optimizer], inverse_sqrt(100), clip=1.0))
    clock = _Clock(machine, steps, watches)
    trainer_options = TrainerOptions(
        accelerator="cpu" if machine.tiny else "gpu",
        precision=precision,
        max_steps=steps,
        log_every_n_steps=10**6,
        lightning={"enable_checkpointing": False, "limit_val_batches": 0},
        **options,
    )
    task.captured_sizes = trainer_options.cuda_graphs
    callbacks = [clock, *([MovingAverage()] if averages else [])]
    trainer = made_trainer(trainer_options, Path(tempfile.mkdtemp()), callbacks)
    rows: Any = [[batch] for batch in batches] * steps
    loader: Any = DataLoader(rows, batch_size=None, pin_memory=not machine.tiny)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        trainer.fit(task, loader)
    waits = [w for w in warned if "synchroniz" in str(w.message)]
    seconds = (clock.ends[1] - clock.ends[0]) / (steps - steps // 2)
    sizes = 0 if task.captured is None else task.captured.sizes
    return Fitted(seconds, [f"{Path(w.filename).name}:{w.lineno}" for w in waits], sizes)
