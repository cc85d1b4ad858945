"""End of a training run: averaged weights, the bundle, its scores, and reports."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import torch

from seqattn.bundle.files import write_bundle
from seqattn.generation.base import inference
from seqattn.screen import duration, note, print_table, progress, say
from seqattn.training.averaging import average_weights
from seqattn.training.checkpoint_files import read, weights
from seqattn.training.checkpoints import Checkpoints
from seqattn.training.progress import score_text
from seqattn.training.report import BestScore
from seqattn.training.result import TrainingResult
from seqattn.training.run_logger import run_loggers
from seqattn.training.setup import Setup
from seqattn.training.tasks.settings import draw_seed

REPORT = "report.html"
"""Page of a run, if it has one."""


def score_bundle(
    result: TrainingResult,
    setup: Setup,
    device: torch.device,
    monitor: str,
    times: Mapping[str, float],
) -> TrainingResult:
    """Write the bundle, score it, and write it again with its scores.

    Args:
        result: the result so far.
        setup: data, model and task.
        device: the device that it was trained on.
        monitor: metric that selected the weights.
        times: seconds of each part of the run, for the card.
    """
    since = f" since step {result.first:,}" if result.first else ""
    spent = {f"{part}{since}": duration(seconds) for part, seconds in times.items()}
    cost = {"optimizer steps": f"{result.steps:,}"} | spent

    def write(scores: Mapping[str, Any]) -> None:
        bundle = setup.bundle
        model, tokenizer = bundle.model.cpu(), bundle.tokenizer
        write_bundle(result.bundle, bundle.config, model, tokenizer, scores, cost)

    write({})  # a complete bundle, in case scoring is stopped
    try:
        scores = _final_scores(setup, device)
    except KeyboardInterrupt:
        say(f"wrote {result.bundle} without scores")
        raise
    write(scores)
    best = scores.get(monitor) if result.monitored is None else result.monitored
    return replace(result, scores=scores, monitored=best)


def hyperparameters(setup: Setup) -> dict[str, Any]:
    """Return all settings, the number of parameters, and the environment."""
    size = sum(parameter.numel() for parameter in setup.model.parameters())
    return {**setup.run.settings, "parameters": size, "environment": setup.environment}


def load_average(setup: Setup, checkpoints: Checkpoints, best: BestScore) -> str:
    """Load the averaged weights into the model; return a text about their steps and selection."""
    steps, prefix = sorted(step for _, step in checkpoints.kept), "model."
    if not steps or setup.run.trainer.fast_dev_run:
        return "last step"
    paths = (weights(checkpoints.files.directory, step) for step in steps)
    states = map(read, paths)
    mean = average_weights(
        {n.removeprefix(prefix): w for n, w in state["state_dict"].items() if n.startswith(prefix)}
        for state in states
    )
    setup.model.load_state_dict(mean)
    origin = "step" if len(steps) == 1 else "mean of steps"
    origin += f" {', '.join(map(str, steps))}"
    if setup.run.checkpoint.average == "last":
        return f"{origin} (last validated)"
    if best.count == 1:
        return f"{origin} (only validation)"
    return f"{origin} (best {best.name} of {best.count} validations)"


def _final_scores(setup: Setup, device: torch.device) -> dict[str, Any]:
    """Return the validation loss of the averaged weights, and the scores of their outputs."""
    task = setup.task.to(device)  # the trainer's teardown has moved it
    task.validation = None  # from here on, validation only gives losses
    loader = setup.data.loader("val")  # the batches of all ranks
    total = 1 if setup.run.trainer.fast_dev_run else len(loader)
    torch.manual_seed(draw_seed(setup.run.seed, 0))
    with progress("validation loss", "batches") as advance, inference(setup.model):
        for number, batch in enumerate(islice(loader, total)):
            task.validation_step(batch.to(device), number)
            advance(number + 1, total)
    losses = task.loss_metric.compute()
    return {f"val/{name}": float(loss) for name, loss in losses.items()} | setup.final_scores()


def log_scores(loggers: Sequence[Any], setup: Setup, result: TrainingResult) -> None:
    """Log the scores of the bundle under names such as `final/val/bleu`; close the loggers."""
    scores = {f"final/{n}": x for n, x in result.scores.items() if isinstance(x, float)}
    aliases = [setup.run.checkpoint.average]
    for logger in run_loggers(loggers):
        if result.steps == result.first:  # a process killed here earlier may have logged scores
            logger.resume(result.steps)
        logger.log_scores(scores, hyperparameters(setup), result.steps)
        logger.keep(result.bundle, "model", aliases)
        logger.keep(result.run_dir / REPORT, "report", aliases)
        logger.close()


def print_result(
    result: TrainingResult, weights: str, times: Mapping[str, float], setup: Setup
) -> None:
    """Print the bundle's scores, training time and speed, and its path."""
    speed, unit = setup.throughput.summary(), setup.throughput.unit
    # figures first; the signatures are in the bundle's scores.json
    rows = {n: score_text(n, x, ".4g") for n, x in result.scores.items() if isinstance(x, float)}
    if search := result.scores.get("search"):
        other = setup.validated_by
        rows["search"] = search + f" (validations: {other})" * (other not in ("", search))
    rows |= {"steps": f"{result.steps:,}", "saved weights": weights}
    rows |= setup.data.split("train").facts(result.steps)
    time_of = f"time since step {result.first:,}" if result.first else "time"
    rows[time_of] = " · ".join(f"{part} {duration(seconds)}" for part, seconds in times.items())
    if result.steps > result.first:
        rows[f"{unit} per second"] = f"{speed['tokens_per_second']:,.0f}"
        rows["padding"] = f"{speed['padding_share']:.1%}"
        rows["waiting for data"] = f"{speed['waiting_share']:.1%}"
    rows["parameters"] = f"{hyperparameters(setup)['parameters']:,}"
    rows["bundle"] = str(result.bundle)
    print_table("Training", rows)
    note(*(f"{name}: {text}" for name, text in rows.items()))
