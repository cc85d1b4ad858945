"""The end of a training: the weights that are kept, the bundle, its scores, and who is told."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from lightning.pytorch.callbacks import LambdaCallback
from pydantic import BaseModel, ValidationError

from seqattn.bundle.files import write_bundle
from seqattn.errors import UserError
from seqattn.inputs import read_yaml
from seqattn.screen import duration, print_table, progress
from seqattn.storage import write_whole
from seqattn.training.averaging import average_weights
from seqattn.training.callbacks import Monitored
from seqattn.training.checkpoint_files import read, weights
from seqattn.training.checkpoints import Checkpoints
from seqattn.training.resume import RESULT
from seqattn.training.run_logger import run_loggers
from seqattn.training.setup import Setup

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


def score_bundle(
    result: TrainingResult, setup: Setup, monitor: str, times: Mapping[str, float]
) -> TrainingResult:
    """Write the bundle, score it, and write it again with its scores.

    Args:
        result: so far.
        setup: what was trained.
        monitor: by what its weights were chosen.
        times: seconds of each part of the run, for its card.
    """
    since = f" since step {result.first:,}" if result.first else ""
    spent = {f"{part}{since}": duration(seconds) for part, seconds in times.items()}
    cost = {"optimizer steps": f"{result.steps:,}"} | spent

    def write(scores: Mapping[str, Any]) -> None:
        bundle = setup.bundle
        model, tokenizer = bundle.model.cpu(), bundle.tokenizer
        write_bundle(result.bundle, bundle.config, model, tokenizer, scores, cost)

    write({})  # so that scoring can be stopped
    try:
        scores = _final_scores(setup)
    except KeyboardInterrupt:
        print(f"{result.bundle} is written, without scores", file=sys.stderr)
        raise
    write(scores)
    best = scores.get(monitor) if result.monitored is None else result.monitored
    return replace(result, scores=scores, monitored=best)


def hyperparameters(setup: Setup) -> dict[str, Any]:
    """All settings, how large the model is, and what the run is made with."""
    size = sum(parameter.numel() for parameter in setup.model.parameters())
    return {**setup.run.settings, "parameters": size, "environment": setup.environment}


def load_average(setup: Setup, kept: Checkpoints, monitored: Monitored) -> str:
    """Put the averaged weights into the model; return which steps they are of, and why."""
    steps, prefix = sorted(step for _, step in kept.kept), "model."
    if not steps or setup.run.trainer.fast_dev_run:
        return "the last step"
    paths = (weights(kept.files.directory, step) for step in steps)
    states = map(read, paths)
    mean = average_weights(
        {n.removeprefix(prefix): w for n, w in state["state_dict"].items() if n.startswith(prefix)}
        for state in states
    )
    setup.model.load_state_dict(mean)
    told = "step" if len(steps) == 1 else "the mean of steps"
    told += f" {', '.join(map(str, steps))}"
    if setup.run.checkpoint.average == "last":
        return f"{told}: the last that were validated"
    if monitored.count == 1:
        return f"{told}: the only validation"
    return f"{told}: best {monitored.name} of {monitored.count} validations"


def _final_scores(setup: Setup) -> dict[str, Any]:
    """Loss of the averaged weights on the validation split, and scores by generation."""
    options = setup.run.trainer
    alone = options.alone(limit_val_batches=1 if options.fast_dev_run else 1.0)
    setup.task.validation = None  # from here on validation gives losses alone
    with progress("losses of val", "batches") as tell:
        total = len(setup.data.val_dataloader())
        steps = LambdaCallback(on_validation_batch_end=lambda *at, **_: tell(at[4] + 1, total))
        trainer = replace(alone, precision=32).trainer(Path(setup.run.run_dir), [steps])
        losses = trainer.validate(setup.task, datamodule=setup.data, verbose=False)[0]
    setup.model.to(trainer.strategy.root_device)  # from where a trainer that ends takes it
    return {n: float(x) for n, x in losses.items()} | setup.final_scores()


def log_scores(loggers: Sequence[Any], setup: Setup, result: TrainingResult) -> None:
    """Log the scores of the bundle, as `final/val/bleu`, and end the loggers."""
    found = {f"final/{n}": x for n, x in result.scores.items() if isinstance(x, float)}
    aliases = [setup.run.checkpoint.average]
    for logger in run_loggers(loggers):
        if result.steps == result.first:  # a process that was killed here may have logged scores
            logger.resume(result.steps)
        logger.log_scores(found, hyperparameters(setup), result.steps)
        logger.keep(result.bundle, "model", aliases)
        logger.keep(result.run_dir / REPORT, "report", aliases)
        logger.close()


def print_result(
    result: TrainingResult, weights: str, times: Mapping[str, float], setup: Setup
) -> None:
    """Print how good the bundle is, where it is, and what it took."""
    speed, unit = setup.throughput.summary(), setup.throughput.unit
    # figures first; the signatures are in the bundle's scores.json
    rows = {n: f"{x:.4g}" for n, x in result.scores.items() if isinstance(x, float)}
    rows |= {"steps": f"{result.steps:,}", "weights kept": weights}
    time_of = f"time since step {result.first:,}" if result.first else "time"
    rows[time_of] = " · ".join(f"{part} {duration(seconds)}" for part, seconds in times.items())
    if result.steps > result.first:
        rows[f"{unit} a second"] = f"{speed['tokens_per_second']:,.0f}"
        rows["padding"] = f"{speed['padding_share']:.1%}"
        rows["waiting for data"] = f"{speed['waiting_share']:.1%}"
    rows["parameters"] = f"{hyperparameters(setup)['parameters']:,}"
    rows["bundle"] = str(result.bundle)
    print_table("Training", rows)
