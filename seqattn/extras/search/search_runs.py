"""Training runs of a search, each in a process and a directory of its own."""

import math
import multiprocessing
import os
import re
import runpy
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from seqattn.extras.search.search_options import SearchOptions
from seqattn.extras.search.search_space import Candidate
from seqattn.processes import follow_parent
from seqattn.training.measurements import read_figures

_SHARED = (
    "trainer.max_epochs=-1", "trainer.threads=1", "trainer.devices=1",
    "trainer.log_every_n_steps=10", "checkpoint.monitor=val/loss", "checkpoint.average=best",
    "checkpoint.count=1", "checkpoint.patience=null", "task.validation.every=0",
    "~watch", "task.final=null", "logger=[csv]", "resume=auto",
)  # fmt: skip
"""Overrides of all runs: one thread, no pictures, and no scores except the losses."""
_ENDING = 30.0
"""Seconds that a process gets to save."""


def command(search: SearchOptions, model: Candidate, run_dir: Path, seed: int) -> list[str]:
    """Return the command line that trains a model of a search, as arguments of seqattn."""
    path = str(run_dir).replace("\\", "\\\\").replace("'", "\\'")
    budget, warmup = search.budget, search.settings["schedule"].get("warmup_steps")
    overrides = [
        *model.overrides, *_SHARED, f"run_dir='{path}'", f"seed={seed}",
        f"trainer.max_steps={budget.steps}", f"trainer.val_check_interval={budget.first_steps}",
    ]  # fmt: skip
    if warmup is not None:  # models are compared at the end
        overrides.append(f"schedule.warmup_steps={max(1, min(warmup, budget.first_steps // 2))}")
    return ["train", *search.options, *unchanged(search.overrides, overrides), *overrides]


class TrainingRun:
    """Process that trains a model, resuming from its directory.

    Args:
        name: name of the run in messages.
        run_dir: directory of the run; the process writes its output to log.txt there.
        command: arguments of seqattn.
    """

    def __init__(self, name: str, run_dir: Path, command: Sequence[str]) -> None:
        self.name, self.run_dir = name, run_dir
        run_dir.mkdir(parents=True, exist_ok=True)
        self.step, self.loss = 0, math.nan
        """Step of the last validation that was read."""
        # forked from a server that has finished the slow imports
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["seqattn.training.run"])
        self.process = context.Process(target=_train, args=(command, run_dir / "log.txt"))
        self.process.start()

    def new_losses(self) -> Iterator[tuple[int, float]]:
        """Yield steps and losses of new validations."""
        for step, loss in losses(self.run_dir).items():
            if step > self.step:
                self.step, self.loss = step, loss
                yield step, loss

    def has_ended(self) -> bool:
        """Return True once the process has ended."""
        return self.process.exitcode is not None

    def failure(self) -> str:
        """Return why the ended process failed, in one line; "" if it did not."""
        code = self.process.exitcode
        if code == 0:
            return "" if math.isfinite(self.loss) else "failed: loss is not finite"
        if code == -9:
            return "failed: killed by the system, possibly out of memory"
        return "failed: " + last_line(self.run_dir / "log.txt")


def stop(runs: Sequence[TrainingRun]) -> None:
    """Terminate processes, giving each time to save."""
    for run in runs:
        run.process.terminate()
    for run in runs:
        run.process.join(_ENDING)
        run.process.kill()
        run.process.join()


def train_all(
    starts: Iterator[TrainingRun | None], jobs: int, done: Callable[[TrainingRun], bool]
) -> None:
    """Train runs, `jobs` at a time.

    Args:
        starts: starts the next run; yields None if it must wait for a running one.
        done: checks a running process, and returns True once it has ended.
    """
    active: list[TrainingRun] = []
    try:
        while True:
            while len(active) < jobs and (run := next(starts, None)) is not None:
                active.append(run)
            if not active:
                return
            time.sleep(0.3)
            active = [run for run in active if not done(run)]
    finally:
        stop(active)


def _train(command: Sequence[str], log: Path) -> None:
    """Run a command line of seqattn in this process, with its output in a file."""
    os.setsid()  # Ctrl-C is handled by the search
    follow_parent()
    with log.open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    sys.argv = ["seqattn", *command]
    runpy.run_module("seqattn", run_name="__main__")


def unchanged(overrides: Sequence[str], chosen: Sequence[str]) -> list[str]:
    """Return the overrides of a run that a candidate does not replace."""
    keys = {word.partition("=")[0].lstrip("~") for word in chosen}
    groups = "|".join(keys & {"attention", "position", "watch"})
    inside = re.compile(rf"(\w+_)?({groups})[.@]" if groups else "$")
    key_of = {word: word.partition("=")[0] for word in overrides}
    return [word for word, key in key_of.items() if key not in keys and not inside.match(key)]


def last_line(log: Path) -> str:
    """Return the error of a log, or else its last line."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    messages = [line for line in lines if line.startswith("error: ")] or lines or ["no output"]
    return messages[-1].removeprefix("error: ")[:300]


def losses(run_dir: Path) -> dict[int, float]:
    """Return the validation losses that a run has logged so far, by step."""
    rows, key = read_figures(run_dir), "val/loss"
    return {int(row["step"]) + 1: float(row[key]) for row in rows if row.get(key)}
