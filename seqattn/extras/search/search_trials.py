"""The trials of a search, each a run that a process of its own trains, and what is known of all."""

import math
import multiprocessing
import os
import re
import runpy
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, StringConstraints, ValidationError

from seqattn.errors import UserError
from seqattn.inputs import read_bytes
from seqattn.processes import follow_parent
from seqattn.runs.ending import TrainingResult
from seqattn.runs.resuming import RESULT
from seqattn.training.measurements import read_figures, training_of

STATE = "trials.json"
_ALIKE = (
    "schedule=inverse_sqrt", "trainer.max_epochs=-1", "trainer.threads=1", "trainer.devices=1",
    "trainer.log_every_n_steps=10", "checkpoint.monitor=val/loss", "checkpoint.average=best",
    "checkpoint.count=1", "checkpoint.patience=null", "task.validation.every=0",
    "task.validation.attention_health=false", "task.final=false", "logger=[csv]", "resume=auto",
)  # fmt: skip
"""What all trials are told: a rate that knows no last step, and no more scores than the losses."""
_OWN = ("run_dir", "seed", "trainer.max_steps")
_ENDING = 30.0  # seconds that a process may take to save


_Override = Annotated[
    str,
    StringConstraints(
        pattern=r"^(attention|position|model|(en|de)coder_attention|cross_attention)"
        r"(@[a-z]+_attention)?(\.[a-z]\w*)*=[\w.+-]+$"
    ),
]
"""As `search_space` writes them: what a file says becomes a command, and runs nothing else."""
_Name = Annotated[str, StringConstraints(pattern=r"^\w[\w.-]*$")]


class Trial(BaseModel):
    """A candidate with a seed, and how far it has come."""

    name: str
    overrides: list[_Override]
    seed: int
    parameters: int = 0
    cache_bytes: int | None = None
    steps: int = 0
    losses: dict[int, float] = {}
    """On validation, by the steps at the end of each rung."""
    seconds: float = 0.0
    """Of training alone."""
    state: Literal["going", "stopped", "failed"] = "going"
    why: str = ""

    @property
    def loss(self) -> float:
        """The last."""
        return self.losses[max(self.losses)] if self.losses else math.inf

    @property
    def step_seconds(self) -> float:
        """Of training."""
        return self.seconds / max(1, self.steps)


class Rung(BaseModel):
    """Trials that are trained up to the same step, and compared there."""

    steps: int
    trials: list[_Name] = []


class SearchState(BaseModel):
    """All that a search knows; written after each change."""

    settings: dict[str, Any] = {}
    """What the search was told."""
    drawn: list[str] = []
    """What was drawn from the space, in words."""
    pilot: dict[str, float] = {}
    """Seconds of a step and of a start, and steps of warm-up."""
    rungs: list[Rung] = []
    trials: dict[_Name, Trial] = {}
    spent: float = 0.0
    """Seconds, over all times that the search went on."""

    @classmethod
    def read(cls, home: Path) -> "SearchState":
        """That of a folder; a new one where there is none.

        Raises:
            UserError: it cannot be read.
        """
        file = home / STATE
        try:
            return cls.model_validate_json(read_bytes(file)) if file.is_file() else cls()
        except ValidationError as error:
            raise UserError(f"{file} cannot be read; name another run_dir") from error

    def ranked(self, names: Sequence[str]) -> list[str]:
        """Those that are still in the race, the best loss first."""
        going = [name for name in names if self.trials[name].state == "going"]
        return sorted(going, key=lambda name: self.trials[name].loss)


def curve_of(home: Path) -> dict[int, float]:
    """Training losses by step, of a run that may be going on."""
    rows = read_figures(home)
    return {int(r["step"]) + 1: float(r["train/loss"]) for r in rows if r.get("train/loss")}


@dataclass
class Process:
    """A process that trains a trial up to some steps.

    Args:
        trial: it.
        home: its folder.
        steps: where it ends.
        warmup: steps of its rate.
        words: the command line of train that all trials share.
        options: of Hydra, such as --config-dir.
        limit: seconds after which it is too slow.
    """

    trial: Trial
    home: Path
    steps: int
    warmup: int
    words: Sequence[str]
    options: Sequence[str] = ()
    limit: float = math.inf

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self.began = time.monotonic()
        # of a server that has imported what takes seconds
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["seqattn.runs.fit"])
        words = ["train", *self.options, *self.arguments]
        self.process = context.Process(target=_train, args=(words, self.home / "log.txt"))
        self.process.start()

    @property
    def arguments(self) -> list[str]:
        """The overrides of its run."""
        chosen = [*self.trial.overrides, *_ALIKE]
        kept = [
            word
            for word in left_of(self.words, chosen)
            if word.partition("=")[0] not in _OWN and not word.startswith("schedule.")
        ]
        home = str(self.home).replace("\\", "\\\\").replace("'", "\\'")
        own = [f"run_dir='{home}'", f"seed={self.trial.seed}"]
        ends = [f"schedule.warmup_steps={self.warmup}", f"trainer.max_steps={self.steps}"]
        return [*kept, *chosen, *own, *ends]

    @property
    def wall(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.began

    def ended(self) -> bool:
        """Whether it has; then the trial says what came of it."""
        if self.process.exitcode is None:
            if self.wall > self.limit:
                self.stop("failed", f"too slow: not done in {self.limit:.0f} seconds")
            return self.process.exitcode is not None
        if self.trial.state == "going":
            self._read(self.process.exitcode)
        return True

    def stop(self, state: Literal["going", "stopped", "failed"] = "going", why: str = "") -> None:
        """Ends it, once it has saved. Args: state, why: what is said of the trial."""
        self.trial.state, self.trial.why = state, why
        self.process.terminate()
        self.process.join(_ENDING)
        self.process.kill()
        self.process.join()
        self.trial.steps = max([self.trial.steps, *curve_of(self.home)])
        self._measure()

    def _read(self, code: int) -> None:
        """What its run came to."""
        done = code == 0 and (self.home / RESULT).is_file()
        result = TrainingResult.kept(self.home) if done else None
        if result is None or result.monitored is None:
            why = said_last(self.home / "log.txt", code)
            self.trial.state, self.trial.why = "failed", why
            return
        self.trial.steps = result.steps
        self.trial.losses[self.steps] = result.monitored
        self._measure()

    def _measure(self) -> None:
        measured = training_of(read_figures(self.home))
        self.trial.seconds = measured[0] or 0.0 if measured else 0.0


def _train(words: Sequence[str], log: Path) -> None:
    """A process's work: the command line of a training, what it says going to a file."""
    os.setsid()  # Ctrl-C is for the search
    follow_parent()
    with log.open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    sys.argv = ["seqattn", *words]
    runpy.run_module("seqattn", run_name="__main__")


def left_of(words: Sequence[str], candidate: Sequence[str]) -> list[str]:
    """The overrides of a run that those of a candidate leave as they are."""
    chosen = {word.partition("=")[0] for word in candidate}
    groups = "|".join(chosen & {"attention", "position"})
    inside = re.compile(rf"(\w+_)?({groups})[.@]" if groups else "$")
    keys = {word: word.partition("=")[0] for word in words}
    return [word for word, key in keys.items() if key not in chosen and not inside.match(key)]


def said_last(log: Path, code: int) -> str:
    """Why a process failed, in a line."""
    if code == -9:
        return "killed by the system, which may have been out of memory"
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("error: ")] or lines or ["it said nothing"]
    return told[-1].removeprefix("error: ")[:300]


def behind(mine: Mapping[int, float], others: Sequence[Mapping[int, float]], after: float) -> str:
    """Why a trial need not go on, "" where it may.

    The rule of Golovin et al. 2017 (Vizier) with the upper quartile in place of the median, since
    curves are close in their first steps.

    Args:
        mine: its training losses by step, so far.
        others: those of trials that have gone further, on the same batches.
        after: steps before which nothing is said.
    """
    steps = [step for step in sorted(mine) if all(step in other for other in others)][-3:]
    if len(others) < 4 or not steps or steps[-1] < after:
        return ""
    here, *there = (statistics.mean(one[step] for step in steps) for one in (mine, *others))
    quartile = statistics.quantiles(there, method="inclusive")[2]
    told = f"its training loss {here:.3f} was above the upper quartile {quartile:.3f}"
    return f"at step {steps[-1]} {told} of {len(others)} others" if here > quartile else ""
