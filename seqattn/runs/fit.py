"""Training itself: from settings that are checked to a bundle that is scored."""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import yaml
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import LambdaCallback, ModelCheckpoint, RichProgressBar

from seqattn.bundle.files import write_bundle
from seqattn.errors import UserError
from seqattn.ops.memory import keep_freed_memory
from seqattn.runs.fitting import Fitting, SpanFitting, TextFitting
from seqattn.runs.run_directory import rank
from seqattn.runs.starting import FORMAT, start_of
from seqattn.runs.tables import print_table
from seqattn.runs.training_options import TrainingOptions
from seqattn.training.averaging import average_weights
from seqattn.training.callbacks import EpochLines


@dataclass(frozen=True)
class TrainingResult:
    """What a run came to.

    Args:
        run_dir: its directory.
        bundle: where its model is.
        monitored: the best value of `checkpoint.monitor`; None where nothing was validated.
        steps: optimizer steps taken.
        scores: of the bundle on the validation split, with signatures.
    """

    run_dir: Path
    bundle: Path
    monitored: float | None
    steps: int
    scores: Mapping[str, Any]


def fit(run: TrainingOptions) -> TrainingResult:
    """Trains on this process's share of the batches; the first rank writes the files.

    Raises:
        UserError: where the data cannot be read, or a start does not fit.
    """
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
    callbacks = [
        *fitting.callbacks,
        *run.made_callbacks(),
        kept,
        *_usual_callbacks(run, fitting, mode),
        monitored,
    ]
    trainer = run.trainer.trainer(home, callbacks, _loggers(run))
    if rank() == 0:
        reports: list[str] = getattr(run.data, "report", list)()  # of what was mended while reading
        for line in [*run.trainer.advice(), *reports, *fitting.data.report()]:
            print(line, file=sys.stderr)
        fitting.bundle.tokenizer.save(home / "tokenizer")
    began = time.perf_counter()
    _train(trainer, fitting)
    seconds = time.perf_counter() - began
    result = TrainingResult(home, home / "model", monitored.best, trainer.global_step, {})
    if not trainer.is_global_zero:
        return result
    weights = _load_average(fitting, sorted(kept.best_k_models))
    result = replace(result, scores=_final_scores(fitting))
    bundle = fitting.bundle
    write_bundle(result.bundle, bundle.config, bundle.model.cpu(), bundle.tokenizer, result.scores)
    _print(result, weights, seconds, fitting)
    return result


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


def _usual_callbacks(run: TrainingOptions, fitting: Fitting, mode: str) -> list[Callback]:
    home = Path(run.run_dir)

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
        RichProgressBar() if sys.stderr.isatty() else EpochLines(fitting.throughput),
        *run.checkpoint.stopping(mode),
        # once training begins: a resumption that is refused leaves the run's own settings
        LambdaCallback(on_train_start=keep_settings),
    ]


def _loggers(run: TrainingOptions) -> list[Any]:
    try:
        return [make() for make in run.logger.values()]
    except ImportError as error:  # Lightning has some that need packages of their own
        raise UserError(f"logger: {error}") from error


def _train(trainer: Trainer, fitting: Fitting) -> None:
    run = fitting.run
    for logger in trainer.loggers:
        logger.log_hyperparams(run.settings)
    last = Path(run.run_dir) / "checkpoints" / "last.ckpt" if run.resume else None
    trainer.fit(
        fitting.task, datamodule=fitting.data, ckpt_path=last, weights_only=True if last else None
    )
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()  # what follows is the first rank's alone


def _load_average(fitting: Fitting, checkpoints: list[str]) -> str:
    """Puts the averaged weights into the model; says which checkpoints they are of."""
    if not checkpoints:
        return "the last step"
    prefix = "model."
    states = (
        torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
        for path in checkpoints
    )
    mean = average_weights(
        {n.removeprefix(prefix): w for n, w in state.items() if n.startswith(prefix)}
        for state in states
    )
    fitting.model.load_state_dict(mean)
    steps = [Path(path).stem.partition("step=")[2].lstrip("0") for path in checkpoints]
    return f"step {steps[0]}" if len(steps) == 1 else f"the mean of steps {', '.join(steps)}"


def _final_scores(fitting: Fitting) -> dict[str, Any]:
    """Loss of the averaged weights on the validation split, and its scores by generation."""
    options = fitting.run.trainer
    hasty = bool(options.fast_dev_run)
    alone = replace(options.alone(limit_val_batches=1 if hasty else 1.0), precision=32)
    fitting.task.validation = None  # from here on validation gives losses alone
    trainer = alone.trainer(Path(fitting.run.run_dir))
    losses = trainer.validate(fitting.task, datamodule=fitting.data, verbose=False)[0]
    fitting.model.to(fitting.task.device)
    return {n: float(x) for n, x in losses.items()} | fitting.scores(8 if hasty else None)


def _print(result: TrainingResult, weights: str, seconds: float, fitting: Fitting) -> None:
    speed, unit = fitting.throughput.summary(), fitting.throughput.unit
    # figures first; the signatures are in the bundle's scores.json
    rows = {n: f"{x:.4g}" for n, x in result.scores.items() if isinstance(x, int | float)}
    rows |= {"steps": f"{result.steps:,}", "weights kept": weights}
    minutes, rest = divmod(round(seconds), 60)
    rows["time"] = f"{minutes} min {rest} s"
    rows[f"{unit} a second"] = f"{speed['tokens_per_second']:,.0f}"
    rows["padding"] = f"{speed['padding_share']:.1%}"
    rows["waiting for data"] = f"{speed['waiting_share']:.1%}"
    rows["bundle"] = str(result.bundle)
    print_table("Training", rows)


class Monitored(Callback):
    """The best value of a logged number so far, which a sweeper is given.

    Args:
        name: of the number.
        mode: which way is better, min or max.
    """

    def __init__(self, name: str, mode: str) -> None:
        self.name, self.better = name, min if mode == "min" else max
        self.best: float | None = None

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called by Lightning."""
        if trainer.state.fn != "fit" or self.name not in trainer.callback_metrics:
            return
        value = float(trainer.callback_metrics[self.name])
        self.best = value if self.best is None else self.better(self.best, value)

    def state_dict(self) -> dict[str, Any]:
        """Kept in a checkpoint."""
        return {"best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """From a checkpoint."""
        self.best = state_dict["best"]
