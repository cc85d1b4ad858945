"""Training itself: from settings that are checked to a bundle that is scored."""

import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
import yaml
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import LambdaCallback

from seqattn.attention.base import length_key
from seqattn.data.options import SpanOptions
from seqattn.errors import UserError
from seqattn.metrics.text import doubts
from seqattn.models.stack import compile_layers
from seqattn.ops.memory import keep_freed_memory, keep_prepared_products, ran_out
from seqattn.runs.ending import TrainingResult, finish, hyperparameters
from seqattn.runs.fitting import Fitting, TextFitting, fitting_of
from seqattn.runs.rendezvous import rendezvous
from seqattn.runs.resuming import FORMAT, RESULT
from seqattn.runs.run_directory import rank, world_size
from seqattn.runs.starting import Start, start_of
from seqattn.runs.training_options import TrainingOptions
from seqattn.storage import write_whole
from seqattn.training.callbacks import Diverged, Finite, LastValidation, Monitored
from seqattn.training.checkpoint_files import CheckpointFiles, newest_whole, step_of
from seqattn.training.checkpoints import Checkpoints
from seqattn.training.loggers import connect, go_on_from, log_settings, made_loggers
from seqattn.training.monitors import ClipShare, DeviceFigures
from seqattn.training.progress import EpochLines, TrainingBar
from seqattn.training.screen import EVERY
from seqattn.training.sharding import FullySharded


def fit(run: TrainingOptions) -> TrainingResult:
    """Trains on this process's share of the batches; the first rank writes the files.

    Raises:
        UserError: where the data cannot be read, or a start does not fit.
    """
    began = time.perf_counter()
    keep_freed_memory()
    keep_prepared_products()
    home = Path(run.run_dir)
    start = start_of(run)
    fitting = _in_turn(start)
    run = start.run
    _check_lengths(fitting)
    mode = run.task.monitors[run.checkpoint.monitor]
    if run.trainer.compile:
        compile_layers(fitting.model)
    kept = run.checkpoint.callback(CheckpointFiles(home / "checkpoints"), mode)
    monitored = Monitored(run.checkpoint.monitor, mode)
    callbacks = [*fitting.callbacks, *run.made_callbacks(), kept, monitored]
    callbacks += _usual_callbacks(fitting, monitored)
    options = replace(run.trainer, accumulate_grad_batches=_accumulated(start))
    loggers = made_loggers(run.logger)
    make = partial(options.trainer, home, callbacks, loggers, [kept.files])
    if rank() == 0:
        mended: list[str] = getattr(run.data, "report", list)()
        said = run.trainer.opening(run.loader) + mended + fitting.data.report()
        for line in [*said, *_doubts(fitting)]:
            print(line, file=sys.stderr)
        if start.checkpoint is None:
            fitting.bundle.tokenizer.save(home / "tokenizer")
        if not run.trainer.fast_dev_run:
            tags = [f"{group}={choice}" for group, choice in run.choices.items()]
            connect(loggers, home, tags, run.sweep)
    rendezvous.agreed(str)  # every rank is ready to train
    times = {"preparing": time.perf_counter() - began}
    began = time.perf_counter()
    trainer = _train(make, fitting, kept, start.checkpoint)
    times["training"] = fitting.throughput.seconds
    times["validating"] = max(0.0, time.perf_counter() - began - times["training"])
    first = step_of(start.checkpoint) if start.checkpoint else 0
    result = TrainingResult(home, home / "model", monitored.best, trainer.global_step, {}, first)
    if not trainer.is_global_zero:
        return result
    return finish(result, fitting, trainer.loggers, kept, monitored, times)


def _in_turn(start: Start) -> Fitting:
    """Data, model and task; other ranks find in the cache what the first one has made."""
    made: list[Fitting] = []

    def make() -> str:
        made.append(fitting_of(start))
        return ""

    rendezvous.agreed(make)
    return made[0] if made else fitting_of(start)


def _check_lengths(fitting: Fitting) -> None:
    """Refuses texts that the model has no positions for, before the first step meets one."""
    model, longest = fitting.model, fitting.data.longest
    limits = (model.max_source_length, getattr(model, "max_target_length", model.max_source_length))

    def bound(limit: int) -> str:
        found = length_key(model, limit)
        own = found.startswith("attention") and fitting.run.encoder_attention is not None
        return f"encoder_{found}" if own else found  # no decoder's attention has one

    for (what, key), tokens, limit in zip(fitting.sides, longest, limits, strict=True):
        if limit is not None and tokens > limit:
            raise UserError(
                f"{bound(limit)} is {limit} tokens and the longest {what} has {tokens}; set "
                f"{key}={limit} to leave out what is beyond, or raise {bound(limit)}"
            )
    limit = limits[0]
    if limit is None or not isinstance(fitting, TextFitting):
        return
    for split, rows in fitting.scored.items():
        sources = fitting.bundle.encode(rows.sources[: fitting.final.sentences or None])
        tokens = max(len(part) for parts in sources for part in parts)
        if tokens > limit:
            raise UserError(
                f"{bound(limit)} is {limit} tokens and the bundle is scored on all of the {split} "
                f"split, of which a source has {tokens}; set loader.long_sources=truncate or "
                f"task.final=false, or raise {bound(limit)}"
            )


def _doubts(fitting: Fitting) -> list[str]:
    """Say what the scorer cannot measure, and where outputs may be shorter than what is learnt."""
    return [*doubts(fitting.run.task.scorer, fitting.rows.references), *_brevity(fitting)]


def _brevity(fitting: Fitting) -> list[str]:
    """Says where outputs may not be as long as what is learnt."""
    limit, longest = getattr(fitting.run.generation, "limit", None), fitting.data.longest[1]
    if limit is None or limit.ratio or limit.extra >= longest:
        return []
    return [
        f"outputs end at {limit.extra} tokens and the longest target has {longest}; set "
        f"generation.limit.extra={longest} for as many"
    ]


def _usual_callbacks(fitting: Fitting, monitored: Monitored) -> list[Callback]:
    run, on_terminal = fitting.run, sys.stderr.isatty()
    home = Path(run.run_dir)
    lines = EpochLines(fitting.throughput, monitored, math.inf if on_terminal else EVERY)

    def keep_settings(trainer: Trainer, task: LightningModule) -> None:
        settings = {"format": FORMAT, "threads": torch.get_num_threads(), **run.settings}
        if trainer.is_global_zero:
            (home / RESULT).unlink(missing_ok=True)
            for name, content in (("config", settings), ("overrides", list(run.overrides))):
                text = yaml.safe_dump(content, sort_keys=False)
                write_whole(home / f"{name}.yaml", text.encode())
            go_on_from(trainer.loggers, trainer.global_step)
            log_settings(trainer.loggers, hyperparameters(fitting), trainer.global_step)

    return [
        Finite(),
        lines,
        ClipShare(),
        DeviceFigures(),
        *([TrainingBar(lines)] if on_terminal else []),
        LastValidation(),
        *run.checkpoint.stopping(run.task.monitors[monitored.name]),
        # once training begins: a resumption that is refused leaves the run's own settings
        LambdaCallback(on_train_start=keep_settings),
    ]


def _accumulated(start: Start) -> int:
    """Batches that each rank accumulates in a step, so that all ranks' are those of a step."""
    run, ranks = start.run, max(world_size(), start.run.trainer.ranks * start.run.trainer.num_nodes)
    asked = start.step_batches
    if asked is None:
        return run.trainer.accumulate_grad_batches
    if asked % ranks:
        raise UserError(
            f"trainer.devices must divide the {asked} batches of a step (loader.step_batches), "
            f"got {ranks}"
        )
    return asked // ranks


def _train(
    make: Callable[[], Trainer], fitting: Fitting, kept: Checkpoints, checkpoint: Path | None
) -> Trainer:
    """Trains; once more from the last checkpoint, past the batches where it diverged."""
    while True:
        trainer = make()
        try:
            trainer.fit(
                fitting.task,
                datamodule=fitting.data,
                ckpt_path=checkpoint,
                weights_only=True if checkpoint else None,
            )
            break
        except RuntimeError as error:
            advice = _advice(error, fitting.run)
            if advice is None:
                raise
            raise UserError(advice) from error
        except Diverged as error:
            kept.files.wait()
            trainer.strategy.barrier()  # before other ranks look at what the first has written
            checkpoint = newest_whole(kept.files.directory, tells=rank() == 0)
            if checkpoint is None or kept.passed is not None:
                raise
            kept.passed = error.place
            if rank() == 0:
                print(f"{error}; going on from {checkpoint.name}", file=sys.stderr)
        finally:
            kept.files.wait()
    if isinstance(trainer.strategy, FullySharded):
        weights = trainer.strategy.lightning_module_state_dict()  # all ranks gather them
        if trainer.is_global_zero:
            fitting.rebuild(weights)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()  # what follows is the first rank's alone
    return trainer


def _advice(error: RuntimeError, run: TrainingOptions) -> str | None:
    """What to do where memory ran out or a data worker died; None for other errors."""
    if ran_out(error):
        return _smaller_batches(run)
    if "DataLoader worker" in str(error):
        return (
            f"{str(error).strip().rstrip('.')}; if memory was short, lower loader.num_workers; "
            "the same command goes on from the last checkpoint"
        )
    return None


def _smaller_batches(run: TrainingOptions) -> str:
    """A budget of tokens that halves the batches, if one row fits into it."""
    loader, too_large = run.loader, "is too large for the memory"
    if isinstance(loader, SpanOptions):
        key, longest = "window", max(loader.window, loader.max_question)
    else:
        key, longest = "max_length", max(loader.max_length, loader.source_length)
    tokens = max(loader.max_tokens // 2, longest)
    if tokens >= loader.max_tokens:
        return (
            f"a batch of one row {too_large}: lower loader.{key} (it is {getattr(loader, key)}), "
            "or choose a smaller model"
        )
    several = f"trainer.accumulate_grad_batches={2 * run.trainer.accumulate_grad_batches}"
    if loader.step_batches is not None:
        several = f"loader.step_batches={2 * loader.step_batches}"
    return (
        f"a batch {too_large}: set loader.max_tokens={tokens} (it is {loader.max_tokens}); with "
        f"{several} a step stays as large"
    )
