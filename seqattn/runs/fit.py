"""Training itself: from settings that are checked to a bundle that is scored."""

import math
import sys
import time
from pathlib import Path
from typing import Any

import torch
import yaml
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import LambdaCallback, ModelCheckpoint
from lightning.pytorch.loggers import WandbLogger

from seqattn.errors import UserError
from seqattn.ops.memory import keep_freed_memory
from seqattn.runs.ending import TrainingResult, finish, hyperparameters
from seqattn.runs.fitting import Fitting, SpanFitting, TextFitting
from seqattn.runs.run_directory import rank
from seqattn.runs.starting import FORMAT, start_of
from seqattn.runs.training_options import TrainingOptions
from seqattn.training.callbacks import Finite, LastValidation, Monitored
from seqattn.training.progress import EpochLines, TrainingBar
from seqattn.training.screen import EVERY


def fit(run: TrainingOptions) -> TrainingResult:
    """Trains on this process's share of the batches; the first rank writes the files.

    Raises:
        UserError: where the data cannot be read, or a start does not fit.
    """
    began = time.perf_counter()
    keep_freed_memory()
    home = Path(run.run_dir)
    start = start_of(run)
    fitting = (SpanFitting if run.task.output == "spans" else TextFitting)(start)
    run = start.run
    _check_lengths(fitting)
    mode = run.task.monitors[run.checkpoint.monitor]
    if run.trainer.compile:
        fitting.model.loss = torch.compile(fitting.model.loss)
    kept = run.checkpoint.kept(home / "checkpoints", mode)
    monitored = Monitored(run.checkpoint.monitor, mode)
    callbacks = [*fitting.callbacks, *run.made_callbacks(), kept, monitored]
    callbacks += _usual_callbacks(run, fitting, monitored)
    trainer = run.trainer.trainer(home, callbacks, _loggers(run))
    if rank() == 0:
        reports: list[str] = getattr(run.data, "report", list)()  # of what was mended while reading
        for line in [*run.trainer.advice(), *reports, *fitting.data.report(), *_brevity(fitting)]:
            print(line, file=sys.stderr)
        fitting.bundle.tokenizer.save(home / "tokenizer")
    times = {"preparing": time.perf_counter() - began}
    began = time.perf_counter()
    _train(trainer, fitting)
    times["training"] = fitting.throughput.seconds
    times["validating"] = max(0.0, time.perf_counter() - began - times["training"])
    result = TrainingResult(home, home / "model", monitored.best, trainer.global_step, {})
    if not trainer.is_global_zero:
        return result
    return finish(result, fitting, trainer.loggers, kept, monitored, times)


def _check_lengths(fitting: Fitting) -> None:
    """Refuses texts that the model has no positions for, before the first step meets one."""
    model, longest = fitting.model, fitting.data.longest
    limits = (model.max_source_length, getattr(model, "max_target_length", model.max_source_length))
    for (what, key), tokens, limit in zip(fitting.sides, longest, limits, strict=True):
        if limit is not None and tokens > limit:
            raise UserError(
                f"position.max_length is {limit} tokens and the longest {what} has {tokens}; set "
                f"{key}={limit} to leave out what is beyond, or raise position.max_length"
            )


def _brevity(fitting: Fitting) -> list[str]:
    """Says where outputs may not be as long as what is learnt."""
    limit, longest = getattr(fitting.run.generation, "limit", None), fitting.data.longest[1]
    if limit is None or limit.ratio or limit.extra >= longest:
        return []
    return [
        f"outputs end at {limit.extra} tokens and the longest target has {longest}; set "
        f"generation.limit.extra={longest} for as many"
    ]


def _usual_callbacks(
    run: TrainingOptions, fitting: Fitting, monitored: Monitored
) -> list[Callback]:
    home, on_terminal = Path(run.run_dir), sys.stderr.isatty()
    lines = EpochLines(fitting.throughput, monitored, math.inf if on_terminal else EVERY)

    def keep_settings(trainer: Trainer, task: LightningModule) -> None:
        settings = {"format": FORMAT, **run.settings}
        if trainer.is_global_zero:
            for name, content in (("config", settings), ("overrides", list(run.overrides))):
                text = yaml.safe_dump(content, sort_keys=False)
                (home / f"{name}.yaml").write_text(text, encoding="utf-8")

    return [
        ModelCheckpoint(
            dirpath=home / "checkpoints", filename="last", enable_version_counter=False
        ),
        lines,
        *([TrainingBar(lines)] if on_terminal else []),
        Finite(),
        LastValidation(),
        *run.checkpoint.stopping(run.task.monitors[monitored.name]),
        # once training begins: a resumption that is refused leaves the run's own settings
        LambdaCallback(on_train_start=keep_settings),
    ]


def _loggers(run: TrainingOptions) -> list[Any]:
    try:
        made = [make() for make in run.logger.values()]
        for logger in made:
            if isinstance(logger, WandbLogger):
                # Lightning hands it on, and Weights & Biases warns that it is no longer there
                logger._wandb_init.pop("anonymous", None)
        return made
    except ImportError as error:  # Lightning has some that need packages of their own
        raise UserError(f"logger: {error}") from error


def _train(trainer: Trainer, fitting: Fitting) -> None:
    run = fitting.run
    for logger in trainer.loggers:
        logger.log_hyperparams(hyperparameters(fitting))
    last = Path(run.run_dir) / "checkpoints" / "last.ckpt" if run.resume else None
    trainer.fit(
        fitting.task, datamodule=fitting.data, ckpt_path=last, weights_only=True if last else None
    )
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()  # what follows is the first rank's alone
