"""The end of a training: the weights that are kept, the bundle, its scores, and who is told."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from lightning.pytorch.callbacks import LambdaCallback
from lightning.pytorch.loggers import TensorBoardLogger, WandbLogger
from pydantic import BaseModel, ValidationError

from seqattn.bundle.files import write_bundle
from seqattn.errors import UserError
from seqattn.inputs import read_yaml
from seqattn.runs.fitting import Fitting
from seqattn.runs.resuming import RESULT
from seqattn.runs.tables import print_table
from seqattn.storage import write_whole
from seqattn.training.averaging import average_weights
from seqattn.training.callbacks import Monitored
from seqattn.training.checkpoint_files import read, weights
from seqattn.training.checkpoints import Checkpoints
from seqattn.training.loggers import WandbRun, go_on_from
from seqattn.training.screen import duration, progress

REPORT = "report.html"
"""The page of a run, where it has one."""


@dataclass(frozen=True)
class TrainingResult:
    """What a run came to.

    Args:
        run_dir: its directory.
        bundle: where its model is.
        monitored: the best value of `checkpoint.monitor`; None where nothing was validated.
        steps: optimizer steps taken.
        scores: of the bundle on the validation split, with signatures.
        first: steps that were taken before it went on here.
    """

    run_dir: Path
    bundle: Path
    monitored: float | None
    steps: int
    scores: Mapping[str, Any]
    first: int = 0

    def keep(self) -> None:
        """Writes it into the run's directory, which says that the run is finished."""
        kept = {"monitored": self.monitored, "steps": self.steps, "scores": dict(self.scores)}
        write_whole(self.run_dir / RESULT, yaml.safe_dump(kept, sort_keys=False).encode())

    @classmethod
    def kept(cls, home: Path) -> "TrainingResult":
        """What the finished run of a directory came to."""
        try:
            found = _Kept.model_validate(read_yaml(home / RESULT))
        except ValidationError as error:
            raise UserError(f"{home / RESULT} cannot be read; start a run anew") from error
        return cls(home, home / "model", found.monitored, found.steps, found.scores)


class _Kept(BaseModel):
    """What of a result is written down."""

    monitored: float | None
    steps: int
    scores: dict[str, Any]


def finish(
    result: TrainingResult,
    fitting: Fitting,
    loggers: Sequence[Any],
    kept: Checkpoints,
    monitored: Monitored,
    times: dict[str, float],
) -> TrainingResult:
    """Writes the bundle of a trained model and its scores, and tells what came of it.

    Args:
        result: so far.
        fitting: what was trained.
        loggers: those of the run, which end here.
        kept: knows the weights that are averaged.
        monitored: knows how good they were.
        times: seconds of each part of the run, to which scoring is added.
    """
    weights = _load_average(fitting, kept, monitored)
    began = time.perf_counter()
    since = f" since step {result.first:,}" if result.first else ""
    spent = {f"{part}{since}": duration(seconds) for part, seconds in times.items()}
    cost = {"optimizer steps": f"{result.steps:,}"} | spent
    result = _scored(result, fitting, monitored.name, cost)
    times["scoring"] = time.perf_counter() - began
    if result.steps == result.first:  # a process that was killed here may have logged its scores
        go_on_from(loggers, result.steps)
    _log(loggers, fitting, result)
    result.keep()  # before anything is printed, which may fail
    _print(result, weights, times, fitting)
    return result


def _scored(
    result: TrainingResult, fitting: Fitting, monitor: str, cost: Mapping[str, str]
) -> TrainingResult:
    """Writes the bundle, scores it, and writes it again with its scores."""

    def write(scores: Mapping[str, Any]) -> None:
        bundle = fitting.bundle
        model, tokenizer = bundle.model.cpu(), bundle.tokenizer
        write_bundle(result.bundle, bundle.config, model, tokenizer, scores, cost)

    write({})  # so that scoring can be stopped
    try:
        scores = _final_scores(fitting)
    except KeyboardInterrupt:
        print(f"{result.bundle} is written, without scores", file=sys.stderr)
        raise
    write(scores)
    best = scores.get(monitor) if result.monitored is None else result.monitored
    return replace(result, scores=scores, monitored=best)


def hyperparameters(fitting: Fitting) -> dict[str, Any]:
    """All settings, how large the model is, and what the run is made with."""
    size = sum(parameter.numel() for parameter in fitting.model.parameters())
    return {**fitting.run.settings, "parameters": size, "environment": fitting.environment}


def _load_average(fitting: Fitting, kept: Checkpoints, monitored: Monitored) -> str:
    """Puts the averaged weights into the model; says which steps they are of, and why."""
    steps, prefix = sorted(step for _, step in kept.kept), "model."
    if not steps or fitting.run.trainer.fast_dev_run:
        return "the last step"
    paths = (weights(kept.files.directory, step) for step in steps)
    states = map(read, paths)
    mean = average_weights(
        {n.removeprefix(prefix): w for n, w in state["state_dict"].items() if n.startswith(prefix)}
        for state in states
    )
    fitting.model.load_state_dict(mean)
    told = "step" if len(steps) == 1 else "the mean of steps"
    told += f" {', '.join(map(str, steps))}"
    if fitting.run.checkpoint.average == "last":
        return f"{told}: the last that were validated"
    if monitored.count == 1:
        return f"{told}: the only validation"
    return f"{told}: best {monitored.name} of {monitored.count} validations"


def _final_scores(fitting: Fitting) -> dict[str, Any]:
    """Loss of the averaged weights on the validation split, and scores by generation."""
    options = fitting.run.trainer
    alone = options.alone(limit_val_batches=1 if options.fast_dev_run else 1.0)
    fitting.task.validation = None  # from here on validation gives losses alone
    with progress("losses of val", "batches") as tell:
        total = len(fitting.data.val_dataloader())
        steps = LambdaCallback(on_validation_batch_end=lambda *at, **_: tell(at[4] + 1, total))
        trainer = replace(alone, precision=32).trainer(Path(fitting.run.run_dir), [steps])
        losses = trainer.validate(fitting.task, datamodule=fitting.data, verbose=False)[0]
    fitting.model.to(trainer.strategy.root_device)  # from where a trainer that ends takes it
    return {n: float(x) for n, x in losses.items()} | fitting.final_scores()


def _log(loggers: Sequence[Any], fitting: Fitting, result: TrainingResult) -> None:
    """Tells the loggers the bundle's scores, as `final/val/bleu`, and lets them end."""
    found = {f"final/{n}": x for n, x in result.scores.items() if isinstance(x, float)}
    for logger in loggers:
        if isinstance(logger, TensorBoardLogger):
            logger.log_hyperparams(hyperparameters(fitting), found, result.steps)
        else:
            logger.log_metrics(found, step=result.steps)
        if isinstance(logger, WandbRun) and logger.artifacts:
            aliases = [fitting.run.checkpoint.average]
            logger.keep(result.bundle, "model", aliases)
            logger.keep(result.run_dir / REPORT, "report", aliases)
        logger.finalize("success")
        if isinstance(logger, WandbLogger):
            if logger.experiment.settings.mode == "online":
                print(f"wandb: {logger.experiment.url}", file=sys.stderr)
            logger.experiment.finish()  # or the next job of a sweep would go on with this one


def _print(
    result: TrainingResult, weights: str, times: Mapping[str, float], fitting: Fitting
) -> None:
    speed, unit = fitting.throughput.summary(), fitting.throughput.unit
    # figures first; the signatures are in the bundle's scores.json
    rows = {n: f"{x:.4g}" for n, x in result.scores.items() if isinstance(x, float)}
    rows |= {"steps": f"{result.steps:,}", "weights kept": weights}
    time_of = f"time since step {result.first:,}" if result.first else "time"
    rows[time_of] = " · ".join(f"{part} {duration(seconds)}" for part, seconds in times.items())
    if result.steps > result.first:
        rows[f"{unit} a second"] = f"{speed['tokens_per_second']:,.0f}"
        rows["padding"] = f"{speed['padding_share']:.1%}"
        rows["waiting for data"] = f"{speed['waiting_share']:.1%}"
    rows["parameters"] = f"{hyperparameters(fitting)['parameters']:,}"
    rows["bundle"] = str(result.bundle)
    print_table("Training", rows)
