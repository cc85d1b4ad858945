"""A training run, from its settings to a scored bundle."""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning import Callback
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import StochasticWeightAveraging, WeightAveraging

from seqattn.checking import shown
from seqattn.errors import UserError
from seqattn.metrics.text import scorer_notices
from seqattn.models.stack import compile_layers
from seqattn.ops.memory import keep_freed_memory, keep_prepared_products
from seqattn.screen import log_to, say
from seqattn.training.checkpoint_files import step_of
from seqattn.training.finish import load_average, log_scores, print_result, score_bundle
from seqattn.training.fit import fit
from seqattn.training.launch import launch
from seqattn.training.length_checks import check_lengths, length_notices
from seqattn.training.loop import TrainingLoop
from seqattn.training.monitors import GradientHistograms
from seqattn.training.rank_messages import rank_messages
from seqattn.training.ranks import rank, world_size
from seqattn.training.result import TrainingResult
from seqattn.training.resume import LOG, phase_of, settings_before, with_rule_of
from seqattn.training.run_directory import claimed
from seqattn.training.run_logger import run_loggers
from seqattn.training.settings import TrainingSettings
from seqattn.training.setup import Setup, setup_of


def start_or_resume(run: TrainingSettings) -> TrainingResult:
    """Train in the directory of a run, or return its result if it is finished."""
    run = run.complete()
    loop, run_dir = loop_of(run), Path(run.run_dir)
    with ExitStack() as stack:

        def begin() -> str:
            stack.enter_context(claimed(run_dir))
            return phase_of(run)

        phase = rank_messages.from_first(begin)
        if phase == "finished":
            return _finished(run_dir)
        if loop is None:
            stack.close()  # the first rank holds the directory
            return launch(run)
        if rank() == 0 and phase == "resumable":
            log_to(run_dir / LOG)
            say(f"resuming training in {run_dir}")
        resuming = phase == "resumable"
        before = settings_before(run_dir, f"resume={run.resume}") if resuming else {}
        run = with_rule_of(run, before) if resuming else run
        with threads_of(run.trainer.threads, before.get("threads")):
            return run_training(run.with_fields(resume=run.run_dir if resuming else None), loop)


def loop_of(run: TrainingSettings) -> TrainingLoop | None:
    """Return the trainer and the callbacks of a run; None if this process starts others that train.

    Args:
        run: with its loggers and callbacks built.

    Raises:
        UserError: for those that cannot be built, or that do not fit the run.
    """
    for group in ("logger", "callbacks"):
        for name, make in getattr(run, group).items():
            if not callable(make):
                must = "must be a config node with _partial_: true"
                raise UserError(f"{group}.{name} {must}, got {shown(make)}")
    callbacks = _made_callbacks(run)
    for one in callbacks:
        if isinstance(one, GradientHistograms):
            kinds = [getattr(make, "func", make) for make in run.logger.values()]
            one.check_loggers([kind for kind in kinds if isinstance(kind, type)])
    if any(isinstance(one, StochasticWeightAveraging) for one in callbacks):
        raise UserError(
            "weights averaged by StochasticWeightAveraging are not saved in checkpoints or "
            "bundles; use callbacks=[ema], or checkpoint.average=last checkpoint.count=5"
        )
    if any(isinstance(one, WeightAveraging) for one in callbacks) and run.trainer.sharded:
        raise UserError(
            "trainer=fsdp2 does not support callbacks=[ema], which needs a full copy of the "
            "weights; use trainer=ddp, or checkpoint.average=last checkpoint.count=5"
        )
    starts_others = run.trainer.ranks > 1 and world_size() == 1
    return None if starts_others else TrainingLoop(run, callbacks)


def _made_callbacks(run: TrainingSettings) -> list[Callback]:
    """Build the user's callbacks.

    Raises:
        UserError: if one cannot be built, or is not a callback.
    """
    callbacks = []
    for name, make in run.callbacks.items():
        try:
            callbacks.append(make())
        except (TypeError, ValueError, MisconfigurationException) as error:
            raise UserError(f"callbacks.{name}: {error}") from error
        if not isinstance(callbacks[-1], Callback):
            raise UserError(
                f"callbacks.{name} must create a lightning.Callback, got {shown(callbacks[-1])}"
            )
    return callbacks


def _finished(run_dir: Path) -> TrainingResult:
    """Report that a run is finished; return its result."""
    result = TrainingResult.load(run_dir)
    if rank() == 0:
        print(
            f"run_dir={run_dir} finished after {result.steps:,} steps; its bundle is "
            f"{result.bundle}; to continue, add resume={run_dir} and a higher trainer.max_steps "
            "or trainer.max_epochs",
            file=sys.stderr,
        )
    return result


@contextmanager
def threads_of(requested: int | None, before: int | None) -> Iterator[None]:
    """Set the threads of a training run on a CPU.

    Args:
        requested: `trainer.threads`; None for all, or for the number that the run began with.
        before: number of threads of a resumed run, on which its sums depend.
    """
    most = torch.get_num_threads()
    torch.set_num_threads(requested or min(before or most, most))
    try:
        yield
    finally:
        torch.set_num_threads(most)


def run_training(options: TrainingSettings, loop: TrainingLoop) -> TrainingResult:
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
    setup = _setup_in_turn(options)  # data, model and task, with initial weights or a checkpoint
    check_lengths(setup)
    if setup.run.trainer.compile:
        # kept longer than in PyTorch's temporary directory, so that resumed runs start at once
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(setup.data.cache_dir / "compiled"))
        compile_layers(setup.model)
    setup.task.captured_sizes = setup.run.trainer.cuda_graphs

    loop.prepare(setup)
    if rank() == 0:
        _announce(setup, loop.loggers)
    rank_messages.from_first(str)  # every rank is ready to train

    times = {"preparing": time.perf_counter() - began}
    began = time.perf_counter()
    trainer = fit(loop, setup)
    times["training"] = setup.throughput.seconds
    times["validating"] = max(0.0, time.perf_counter() - began - times["training"])
    first = step_of(setup.checkpoint) if setup.checkpoint else 0
    run_dir, steps = Path(setup.run.run_dir), trainer.global_step
    result = TrainingResult(run_dir, run_dir / "model", loop.best.best, steps, {}, first)
    if not trainer.is_global_zero:
        return result

    weights = load_average(setup, loop.checkpoints, loop.best)
    device = trainer.strategy.root_device
    began = time.perf_counter()
    result = score_bundle(result, setup, device, loop.best.name, times)  # and write it
    times["scoring"] = time.perf_counter() - began
    log_scores(trainer.loggers, setup, result)
    result.save()  # before anything is printed, which may fail
    print_result(result, weights, times, setup)
    return result


def _setup_in_turn(run: TrainingSettings) -> Setup:
    """Return data, model and task; the first rank fills the cache for the others."""
    setups: list[Setup] = []

    def make() -> str:
        setups.append(setup_of(run))
        return ""

    rank_messages.from_first(make)
    return setups[0] if setups else setup_of(run)


def _announce(setup: Setup, loggers: Sequence[Any]) -> None:
    """Print facts about the data and the run, save its vocabulary, and open its loggers."""
    run, run_dir = setup.run, Path(setup.run.run_dir)
    size = sum(parameter.numel() for parameter in setup.model.parameters())
    of_source: Any = getattr(run.data, "notices", list)
    log_to(run_dir / LOG)
    say(
        *run.trainer.notices(run.loader, size),
        *run.parameter_groups.notices(setup.model),
        *of_source(),
        *setup.data.notices(),
        *scorer_notices(run.task.scorer, setup.rows.references),
        *length_notices(setup),
    )
    if setup.checkpoint is None:
        setup.bundle.tokenizer.save(run_dir / "tokenizer")
    if not run.trainer.fast_dev_run:
        tags = [f"{group}={choice}" for group, choice in run.choices.items()]
        for logger in run_loggers(loggers):
            logger.open(run_dir, tags, run.sweep)
