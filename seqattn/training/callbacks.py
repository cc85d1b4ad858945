"""Callbacks that measure and tell."""

import math
import sys
import time
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import TensorBoardLogger, WandbLogger


class Throughput(Callback):
    """Tokens a second, share of padding, and share of time spent waiting for data.

    Waiting is all time between the end of a step and the start of the next, validation left out.

    Args:
        unit: which tokens are counted, in words.
        count: how many of them a batch has.
    """

    def __init__(
        self,
        unit: str = "target tokens",
        count: Callable[[Any], int] = attrgetter("target_tokens"),
    ) -> None:
        self.unit, self.count = unit, count
        self.tokens = self.steps = 0
        self.busy_seconds = self.waiting_seconds = self._padding = self._began = 0.0
        self._ended = math.inf
        self._reported = (0, 0.0)

    @property
    def seconds(self) -> float:
        """Seconds of training, validation left out."""
        return self.busy_seconds + self.waiting_seconds

    def summary(self) -> dict[str, float]:
        """Tokens a second, padding and waiting shares (0 to 1), over all of this run."""
        return {
            "tokens_per_second": self.tokens / max(self.seconds, 1e-9),
            "padding_share": self._padding / max(self.steps, 1),
            "waiting_share": self.waiting_seconds / max(self.seconds, 1e-9),
        }

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._ended = time.perf_counter()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._ended = math.inf  # what follows a validation, pictures and checkpoints, is no waiting

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._began = time.perf_counter()
        self.waiting_seconds += max(0.0, self._began - self._ended)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._ended = time.perf_counter()
        self.busy_seconds += self._ended - self._began
        self.tokens += self.count(batch) * trainer.world_size
        self.steps += 1
        self._padding += batch.padding_share
        if self.steps % max(1, trainer.log_every_n_steps) == 0:  # type: ignore[attr-defined]
            tokens, seconds = self._reported
            rate = (self.tokens - tokens) / max(self.seconds - seconds, 1e-9)
            self._reported = (self.tokens, self.seconds)
            pl_module.log("tok/s", rate, prog_bar=True, logger=False, batch_size=1)
            rates = {**self.summary(), "tokens_per_second": rate}
            rates["lr"] = trainer.optimizers[0].param_groups[0]["lr"]
            logged = {f"train/{name}": value for name, value in rates.items()}
            pl_module.log_dict(logged, batch_size=1)


_TOLD = ("loss", "perplexity", "accuracy")
_UNTOLD = ("nll", "rouge1", "rouge2", "rougeLsum")


class EpochLines(Callback):
    """A line on standard error after each validation, for where no progress bar is shown.

    Args:
        throughput: what it reports the speed from.
    """

    def __init__(self, throughput: Throughput) -> None:
        self.throughput = throughput

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking or trainer.state.fn != "fit" or not trainer.is_global_zero:
            return
        scores = dict(trainer.callback_metrics)
        parts = [f"epoch {trainer.current_epoch + 1}", f"step {trainer.global_step}"]
        if "train/loss" in scores:
            parts.append(f"train loss {float(scores['train/loss']):.3f}")
        found = [key.removeprefix("val/") for key in scores if key.startswith("val/")]
        names = [name for name in _TOLD if name in found]
        if getattr(pl_module, "generates_now", True):  # else the others are of an earlier epoch
            names += [name for name in found if name not in _TOLD + _UNTOLD]
        parts += [f"val {name} {float(scores[f'val/{name}']):.3f}" for name in names]
        speed = self.throughput.summary()["tokens_per_second"]
        parts.append(f"{speed:,.0f} {self.throughput.unit}/s")
        print(" · ".join(parts), file=sys.stderr, flush=True)


class SampleTexts(Callback):
    """Logs some of the last validation's hypotheses beside their references.

    Args:
        samples: gives (source, hypothesis, reference) texts.
        directory: where they are written, a file for each validation.
    """

    def __init__(self, samples: Callable[[], list[tuple[str, str, str]]], directory: Path) -> None:
        self.samples = samples
        self.directory = directory

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking or trainer.state.fn != "fit" or not trainer.is_global_zero:
            return
        rows = self.samples()
        if not rows or trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        step = trainer.global_step
        text = "\n\n".join(f"source     {s}\nhypothesis {h}\nreference  {r}" for s, h, r in rows)
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / f"step_{step:06d}.txt").write_text(text + "\n", encoding="utf-8")
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoardLogger):
                logger.experiment.add_text("samples", text.replace("\n", "  \n"), step)
            elif isinstance(logger, WandbLogger):
                columns = ["source", "hypothesis", "reference"]
                logger.log_text("samples", columns, [list(row) for row in rows], step=step)
