"""The trials of a search: each a run in a folder of its own, trained by a process of its own."""

from __future__ import annotations

import csv
import multiprocessing
import os
import re
import runpy
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel

from seqattn.processes import follow_parent
from seqattn.runs.ending import TrainingResult

SHORT = (
    "schedule=inverse_sqrt", "trainer.max_epochs=-1", "trainer.threads=1", "trainer.devices=1",
    "trainer.log_every_n_steps=10", "checkpoint.monitor=val/loss", "checkpoint.average=best",
    "checkpoint.count=1", "checkpoint.patience=null", "task.validation.every=0",
    "task.validation.attention_health=false", "task.final=false", "logger=[csv]", "resume=auto",
)  # fmt: skip
"""What a trial is told beside its model: a rate that knows no last step, and no more than the
losses."""
_OWN = ("run_dir", "seed", "trainer.max_steps")
_ENDS = 30.0  # seconds that a process may take to save and end


class Trial(BaseModel):
    """A candidate with a seed, and how far it has come."""

    name: str
    overrides: list[str]
    seed: int
    parameters: int = 0
    cache_bytes: int | None = None
    steps: int = 0
    losses: dict[int, float] = {}
    """On validation, by the steps at the end of each rung."""
    seconds: float = 0.0
    """Of training alone."""
    wall: float = 0.0
    """Seconds in all, starting and validating included."""
    memory_mb: float = 0.0
    state: Literal["going", "stopped", "failed"] = "going"
    why: str = ""

    @property
    def loss(self) -> float:
        """The last."""
        return self.losses[max(self.losses)] if self.losses else float("inf")

    @property
    def step_seconds(self) -> float:
        """Of training."""
        return self.seconds / max(1, self.steps)


def curve_of(home: Path, column: str = "train/loss") -> dict[int, float]:
    """A logged number by step, of a run that may be going on."""
    return {int(row["step"]) + 1: float(row[column]) for row in _rows(home) if row.get(column)}


def _rows(home: Path) -> list[dict[str, Any]]:
    file = home / "csv" / "version_0" / "metrics.csv"
    if not file.is_file():
        return []
    with file.open(encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if None not in row.values()]
    return [row for row in rows if (row.get("step") or "").isdigit()]


@dataclass
class Process:
    """A process that trains a trial up to some steps.

    Args:
        trial: it.
        home: its folder.
        steps: where it ends.
        warmup: steps of its rate.
        words: the command line of train, for all trials.
        options: of Hydra, such as --config-dir.
        limit: seconds after which it is too slow.
    """

    trial: Trial
    home: Path
    steps: int
    warmup: int
    words: Sequence[str]
    options: Sequence[str] = ()
    limit: float = float("inf")

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self.began = time.monotonic()
        words = ["train", *self.options, *self.arguments]
        # of a server that has imported what takes seconds
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["seqattn.runs.fit"])
        self.process = context.Process(target=_train, args=(words, self.home / "log.txt"))
        self.process.start()

    @property
    def arguments(self) -> list[str]:
        """The overrides of its run."""
        candidate = [*self.trial.overrides, *SHORT]
        kept = [
            word
            for word in left_of(self.words, candidate)
            if word.partition("=")[0] not in _OWN and not word.startswith("schedule.")
        ]
        own = [f"run_dir={_quoted(str(self.home))}", f"seed={self.trial.seed}"]
        ends = [f"schedule.warmup_steps={self.warmup}", f"trainer.max_steps={self.steps}"]
        return [*kept, *candidate, *own, *ends]

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self.began

    def ended(self) -> bool:
        """Whether it has; then the trial says how."""
        if self.process.exitcode is None:
            if self.seconds > self.limit:
                self.stop("failed", f"too slow: not done in {self.limit:.0f} seconds")
            return self.process.exitcode is not None
        if self.trial.state == "going":
            self._read()
        return True

    def stop(self, state: Literal["going", "stopped", "failed"] = "going", why: str = "") -> None:
        """Ends it, once it has saved. Args: state, why: what is said of the trial."""
        self.trial.state, self.trial.why = state, why
        self.process.terminate()
        self.process.join(_ENDS)
        self.process.kill()
        self.process.join()
        self._measure()

    def _read(self) -> None:
        """What its run came to."""
        trial, code = self.trial, self.process.exitcode or 0
        self._measure()
        try:
            result = TrainingResult.kept(self.home) if code == 0 else None
        except (OSError, TypeError, yaml.YAMLError):
            result = None
        if result is not None and result.monitored is not None and result.steps >= self.steps:
            trial.steps = result.steps
            trial.losses[self.steps] = result.monitored
            return
        trial.state, trial.why = "failed", said_last(self.home / "log.txt", code)

    def _measure(self) -> None:
        """Adds up how long it took."""
        trial, rows = self.trial, _rows(self.home)
        trial.wall += self.seconds
        told = [row for row in rows if row.get("train/tokens")]
        counts = [0.0, *(float(row["train/tokens"]) for row in told)]
        rates = [float(row["train/tokens_per_second"]) for row in told]
        steps = [int(row["step"]) + 1 for row in told]
        if told:
            spent = sum(
                max(0.0, now - before) / max(rate, 1e-9)
                for before, now, rate in zip(counts, counts[1:], rates, strict=False)
            )
            trial.steps = steps[-1]
            trial.seconds = spent
            trial.memory_mb = float(told[-1].get("train/peak_memory_mb") or 0.0)


def left_of(words: Sequence[str], candidate: Sequence[str]) -> list[str]:
    """The overrides of a run that those of a candidate leave as they are."""
    chosen = {word.partition("=")[0] for word in candidate}
    groups = "|".join(chosen & {"attention", "position"})
    inside = re.compile(rf"(\w+_)?({groups})[.@]" if groups else "$")
    keys = {word: word.partition("=")[0] for word in words}
    return [word for word, key in keys.items() if key not in chosen and not inside.match(key)]


def _train(words: Sequence[str], log: Path) -> None:
    """A process's work: the command line of a training, what it says going to a file."""
    os.setsid()  # Ctrl-C is for the search
    follow_parent()
    with log.open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    sys.argv = ["seqattn", *words]
    runpy.run_module("seqattn", run_name="__main__")


def said_last(log: Path, code: int) -> str:
    """Why a process failed, in a line."""
    if code == -9:
        return "killed by the system, which may have been out of memory"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    lines = [line.strip() for line in lines if line.strip()]
    told = [line for line in lines if line.startswith("error: ")] or lines or ["it said nothing"]
    return told[-1].removeprefix("error: ")[:300]


def is_behind(mine: dict[int, float], others: Sequence[dict[int, float]], after: int) -> str:
    """Why a curve need not go on, "" where it may: the median rule of Golovin et al. 2017 (Vizier).

    Args:
        mine: training losses by step, so far.
        others: those of the trials that have gone further, on the same batches.
        after: steps before which nothing is said.
    """
    steps = [step for step in sorted(mine) if all(step in other for other in others)][-3:]
    if len(others) < 3 or not steps or steps[-1] < after:
        return ""
    here = statistics.mean(mine[step] for step in steps)
    median = statistics.median(statistics.mean(other[step] for step in steps) for other in others)
    if here <= median:
        return ""
    return (
        f"at step {steps[-1]} its training loss {here:.3f} was above the median {median:.3f} of "
        f"{len(others)} others"
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
