"""A training run, from its settings to a scored bundle."""

import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import yaml
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import LambdaCallback

from seqattn.errors import UserError
from seqattn.metrics.text import doubts
from seqattn.models.stack import compile_layers
from seqattn.ops.memory import keep_freed_memory, keep_prepared_products
from seqattn.screen import EVERY, log_to, say
from seqattn.storage import write_whole
from seqattn.training.callbacks import Finite, LastValidation, Monitored
from seqattn.training.checkpoint_files import CheckpointFiles, step_of
from seqattn.training.finish import (
    TrainingResult,
    hyperparameters,
    load_average,
    log_scores,
    print_result,
    score_bundle,
)
from seqattn.training.fit import fit
from seqattn.training.length_checks import brevity, check_lengths, without_effect
from seqattn.training.loggers import made_loggers
from seqattn.training.monitors import ClipShare, DeviceFigures
from seqattn.training.options import TrainingOptions
from seqattn.training.progress import EpochLines, TrainingBar
from seqattn.training.ranks import rank, world_size
from seqattn.training.rendezvous import rendezvous
from seqattn.training.resume import FORMAT, RESULT
from seqattn.training.run_logger import run_loggers
from seqattn.training.setup import Setup, setup_of
from seqattn.training.start import Start, start_of

LOG = "train.log"
"""File of a run with the lines that its training prints."""


def run_training(options: TrainingOptions) -> TrainingResult:
    """Train on this process's share of the batches; the first rank writes, scores and reports.

    Returns:
        The result; incomplete on ranks above the first.

    Raises:
        UserError: if the data cannot be read, or the initial weights do not fit.
    """
    keep_freed_memory()
    keep_prepared_products()
    began = time.perf_counter()
    start = start_of(options)  # random weights, a bundle's, or a checkpoint's
    setup = _setup_in_turn(start)  # data, model and task
    check_lengths(setup)
    if setup.run.trainer.compile:
        # kept longer than in PyTorch's temporary directory, so that resumed runs start at once
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(setup.data.cache_dir / "compiled"))
        compile_layers(setup.model)

    run, run_dir = setup.run, Path(setup.run.run_dir)
    mode = run.task.monitors[run.checkpoint.monitor]
    monitored = Monitored(run.checkpoint.monitor, mode)
    checkpoints = run.checkpoint.callback(CheckpointFiles(run_dir / "checkpoints"), mode)
    own = [*setup.callbacks, *run.made_callbacks(), checkpoints, monitored]
    callbacks = [*own, *_usual_callbacks(setup, monitored)]
    trainer_options = replace(run.trainer, accumulate_grad_batches=_accumulated(start))
    loggers = made_loggers(run.logger)
    make = partial(trainer_options.trainer, run_dir, callbacks, loggers, [checkpoints.files])
    if rank() == 0:
        _announce(setup, start, loggers)
    rendezvous.agreed(str)  # every rank is ready to train

    times = {"preparing": time.perf_counter() - began}
    began = time.perf_counter()
    trainer = fit(make, setup, checkpoints, start.checkpoint)
    times["training"] = setup.throughput.seconds
    times["validating"] = max(0.0, time.perf_counter() - began - times["training"])
    first = step_of(start.checkpoint) if start.checkpoint else 0
    bundle, steps = run_dir / "model", trainer.global_step
    result = TrainingResult(run_dir, bundle, monitored.best, steps, {}, first)
    if not trainer.is_global_zero:
        return result

    weights, device = load_average(setup, checkpoints, monitored), trainer.strategy.root_device
    began = time.perf_counter()
    result = score_bundle(result, setup, device, monitored.name, times)  # and write it
    times["scoring"] = time.perf_counter() - began
    log_scores(trainer.loggers, setup, result)
    result.save()  # before anything is printed, which may fail
    print_result(result, weights, times, setup)
    return result


def _setup_in_turn(start: Start) -> Setup:
    """Return data, model and task; the first rank fills the cache for the others."""
    setups: list[Setup] = []

    def make() -> str:
        setups.append(setup_of(start))
        return ""

    rendezvous.agreed(make)
    return setups[0] if setups else setup_of(start)


def _announce(setup: Setup, start: Start, loggers: Sequence[Any]) -> None:
    """Print facts about the data and the run, save its vocabulary, and open its loggers."""
    run, run_dir = setup.run, Path(setup.run.run_dir)
    mended: list[str] = getattr(run.data, "report", list)()
    size = sum(parameter.numel() for parameter in setup.model.parameters())
    lines = run.trainer.opening(run.loader, size) + run.parts.report(setup.model)
    lines += mended + setup.data.report()
    log_to(run_dir / LOG)
    say(
        *lines,
        *doubts(run.task.scorer, setup.rows.references),
        *brevity(setup),
        *without_effect(setup),
    )
    if start.checkpoint is None:
        setup.bundle.tokenizer.save(run_dir / "tokenizer")
    if not run.trainer.fast_dev_run:
        tags = [f"{group}={choice}" for group, choice in run.choices.items()]
        for logger in run_loggers(loggers):
            logger.open(run_dir, tags, run.sweep)


def _usual_callbacks(setup: Setup, monitored: Monitored) -> list[Callback]:
    run, on_terminal = setup.run, sys.stderr.isatty()
    run_dir = Path(run.run_dir)
    lines = EpochLines(setup.throughput, monitored, math.inf if on_terminal else EVERY)

    def keep_settings(trainer: Trainer, task: LightningModule) -> None:
        settings = {"format": FORMAT, "threads": torch.get_num_threads(), **run.settings}
        if trainer.is_global_zero:
            (run_dir / RESULT).unlink(missing_ok=True)
            for name, content in (("config", settings), ("overrides", list(run.overrides))):
                text = yaml.safe_dump(content, sort_keys=False)
                write_whole(run_dir / f"{name}.yaml", text.encode())
            for logger in run_loggers(trainer.loggers):
                logger.resume(trainer.global_step)
                logger.log_settings(hyperparameters(setup), trainer.global_step)

    return [
        Finite(),
        lines,
        ClipShare(),
        DeviceFigures(),
        *([TrainingBar(lines)] if on_terminal else []),
        LastValidation(),
        *run.checkpoint.stopping(run.task.monitors[monitored.name]),
        # at the start of training: a failed resumption keeps the run's settings
        LambdaCallback(on_train_start=keep_settings),
    ]


def _accumulated(start: Start) -> int:
    """Return the number of batches that each rank accumulates per step."""
    run, ranks = start.run, max(world_size(), start.run.trainer.ranks * start.run.trainer.num_nodes)
    batches = start.step_batches
    if batches is None:
        return run.trainer.accumulate_grad_batches
    if batches % ranks:
        raise UserError(
            f"trainer.devices must divide the {batches} batches per step (loader.step_batches), "
            f"got {ranks}"
        )
    return batches // ranks
