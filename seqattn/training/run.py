"""A training run, from its settings to a scored bundle."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqattn.metrics.text import doubts
from seqattn.models.stack import compile_layers
from seqattn.ops.memory import keep_freed_memory, keep_prepared_products
from seqattn.screen import log_to, say
from seqattn.training.checkpoint_files import step_of
from seqattn.training.finish import (
    TrainingResult,
    load_average,
    log_scores,
    print_result,
    score_bundle,
)
from seqattn.training.fit import fit
from seqattn.training.length_checks import brevity, check_lengths, without_effect
from seqattn.training.loop import TrainingLoop
from seqattn.training.options import TrainingOptions
from seqattn.training.ranks import rank
from seqattn.training.rendezvous import rendezvous
from seqattn.training.run_logger import run_loggers
from seqattn.training.setup import Setup, setup_of
from seqattn.training.start import Start, start_of

LOG = "train.log"
"""File of a run with the lines that its training prints."""


def run_training(options: TrainingOptions, loop: TrainingLoop) -> TrainingResult:
    """Train on this process's share of the batches; the first rank writes, scores and reports.

    Args:
        options: settings of the run.
        loop: its trainer and callbacks.

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

    loop.prepare(setup, start.step_batches)
    if rank() == 0:
        _announce(setup, start, loop.loggers)
    rendezvous.agreed(str)  # every rank is ready to train

    times = {"preparing": time.perf_counter() - began}
    began = time.perf_counter()
    trainer = fit(loop, setup, start.checkpoint)
    times["training"] = setup.throughput.seconds
    times["validating"] = max(0.0, time.perf_counter() - began - times["training"])
    first = step_of(start.checkpoint) if start.checkpoint else 0
    run_dir, steps = Path(setup.run.run_dir), trainer.global_step
    result = TrainingResult(run_dir, run_dir / "model", loop.monitored.best, steps, {}, first)
    if not trainer.is_global_zero:
        return result

    weights, device = (
        load_average(setup, loop.checkpoints, loop.monitored),
        trainer.strategy.root_device,
    )
    began = time.perf_counter()
    result = score_bundle(result, setup, device, loop.monitored.name, times)  # and write it
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
