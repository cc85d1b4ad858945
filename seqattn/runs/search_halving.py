"""Successive halving: many models for a few steps, the better of them for more."""

from __future__ import annotations

import math
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le, MinLen
from pydantic import BaseModel, ValidationError
from rich.console import Console
from rich.live import Live
from rich.table import Table

from seqattn.checking import Count, checked
from seqattn.errors import UserError
from seqattn.runs.search_trials import Process, Trial, curve_of, is_behind
from seqattn.storage import write_whole
from seqattn.training.screen import duration

STATE = "trials.json"
PILOT = 40
"""Steps of the run that says how long a step takes."""
_MEASURED = 0.1  # share of the time that is for measuring the finalists
_SLOWEST = 4.0  # times what the pilot's model takes


@checked
@dataclass(frozen=True)
class Budget:
    """What a search may take, and how it is shared out.

    Args:
        minutes: all of it.
        candidates: models that are tried; None for as many as the minutes allow.
        first_steps: the fewest steps after which models are compared.
        steps: at which they are compared, given to repeat a search; None for those that the
            minutes allow.
        factor: by which steps grow from one comparison to the next.
        finalists: models that are trained to the end.
        seeds: trainings of each finalist.

    Raises:
        UserError: for steps that do not rise.
    """

    minutes: Annotated[float, Gt(0), Le(10**6)] = 30.0
    candidates: Annotated[int, Ge(2), Le(1000)] | None = None
    first_steps: Count = 100
    steps: Annotated[list[Count], MinLen(1)] | None = None
    factor: Annotated[int, Ge(2), Le(10)] = 3
    finalists: Annotated[int, Ge(2), Le(100)] = 3
    seeds: Annotated[int, Ge(1), Le(100)] = 2

    def __post_init__(self) -> None:
        if self.steps is not None and sorted(set(self.steps)) != self.steps:
            raise UserError(f"budget.steps must rise, got {self.steps}")

    def counts(self, candidates: int) -> list[int]:
        """How many models there are in each rung, those of the last without their seeds."""
        if self.steps is not None:
            rungs = len(self.steps)
        else:
            rungs = 1 + max(0, round(math.log(candidates / self.finalists, self.factor)))
        last = min(self.finalists, candidates)
        shares = [number / max(1, rungs - 1) for number in range(rungs)]
        return [round(candidates * (last / candidates) ** share) for share in shares]

    def steps_for(self, candidates: int, step: float, start: float, seconds: float) -> list[int]:
        """Steps at the end of each rung that use up some seconds.

        Args:
            candidates: models of the first rung.
            step: seconds that a step takes.
            start: seconds that a process takes beside its steps.
            seconds: of all cores together.
        """
        counts = self.counts(candidates)
        growth = [self.factor**number for number in range(len(counts))]
        fresh = counts[-1] * (self.seeds - 1)
        each = [now - before for before, now in zip([0, *growth], growth, strict=False)]
        units = sum(n * more for n, more in zip(counts, each, strict=True)) + fresh * growth[-1]
        first = (seconds - start * (sum(counts) + fresh)) / (step * units)
        return [int(first * one) for one in growth]


class Rung(BaseModel):
    """Trials that are trained up to the same step, and compared there."""

    steps: int
    trials: list[str] = []


class SearchState(BaseModel):
    """All that a search knows; written after each change."""

    settings: dict[str, Any] = {}
    """What the search was told; the same command goes on with it."""
    drawn: list[str] = []
    """What was drawn from the space, in words."""
    pilot: dict[str, float] = {}
    """Seconds of a step and of a start, and the warm-up."""
    rungs: list[Rung] = []
    trials: dict[str, Trial] = {}
    spent: float = 0.0
    """Seconds, over all times that the search went on."""
    cores: int = 1

    @classmethod
    def read(cls, home: Path) -> SearchState:
        """That of a folder; a new one where there is none.

        Raises:
            UserError: it cannot be read.
        """
        file = home / STATE
        if not file.is_file():
            return cls()
        try:
            return cls.model_validate_json(file.read_bytes())
        except ValidationError as error:
            raise UserError(f"{file} cannot be read; name another run_dir") from error

    def ranked(self, names: Sequence[str]) -> list[str]:
        """Those that are still in the race, the best loss first."""
        going = [name for name in names if self.trials[name].state == "going"]
        return sorted(going, key=lambda name: self.trials[name].loss)


@dataclass
class Halving:
    """The race, which goes on wherever it was stopped.

    Args:
        home: the folder of the search.
        state: what is known; written there.
        budget: what it may take.
        jobs: processes at a time.
        words: the command line of train, for all trials.
        options: of Hydra.
    """

    home: Path
    state: SearchState
    budget: Budget
    jobs: int
    words: Sequence[str]
    options: Sequence[str] = ()
    going: dict[str, Process] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._told = time.monotonic()

    def save(self) -> None:
        """Writes the state, with the time since it was last written."""
        now = time.monotonic()
        self.state.spent += now - self._told
        self._told = now
        write_whole(self.home / STATE, self.state.model_dump_json(indent=1).encode())

    @property
    def seconds_left(self) -> float:
        """Of training, all cores together."""
        whole = self.budget.minutes * 60
        return (whole * (1 - _MEASURED) - self.state.spent) * self.jobs

    def try_out(self) -> None:
        """Trains the run's own model for a moment, which also makes the vocabulary.

        Raises:
            UserError: it cannot be trained.
        """
        if self.state.pilot:
            return
        trial = Trial(name="pilot", overrides=[], seed=1)
        process = self._process("pilot", trial, PILOT, 10)
        try:
            while not process.ended():
                time.sleep(0.1)
        except KeyboardInterrupt:
            process.stop()
            raise
        if trial.state == "failed":
            raise UserError(f"the run that is searched around fails: {trial.why}")
        start = max(0.0, trial.wall - trial.seconds)
        self.state.pilot = {"step": trial.step_seconds, "start": start}
        self.save()

    def plan(self, candidates: int) -> list[int]:
        """Steps of the rungs for so many models. Args: candidates: none for the most that fit.

        Raises:
            UserError: where the minutes are too few for any.
        """
        step, start = self.state.pilot["step"] * 1.2, self.state.pilot["start"]
        return self.budget.steps_for(candidates, step, start, self.seconds_left)

    def most(self, candidates: int) -> int:
        """How many models can be compared after `first_steps`, of so many at most.

        Raises:
            UserError: where the minutes are too few for the finalists alone.
        """
        fewest = min(self.budget.finalists, candidates)
        for count in range(candidates, fewest - 1, -1):
            if self.plan(count)[0] >= self.budget.first_steps:
                return count
        raise UserError(
            f"budget.minutes={self.budget.minutes:g} is too little: a step takes "
            f"{self.state.pilot['step']:.2f} seconds here, and {fewest} finalists of "
            f"{self.budget.seeds} seeds need {self.budget.first_steps} steps each; give more, or "
            "lower budget.finalists, budget.seeds or budget.first_steps"
        )

    def run(self) -> None:
        """Trains rung after rung.

        Raises:
            UserError: where all trials of a rung have failed.
        """
        with self._screen() as show:
            for number, rung in enumerate(self.state.rungs):
                if not rung.trials:
                    self._promote(number)
                self._train(rung, number, show)
                if not self.state.ranked(rung.trials):
                    last = self.state.trials[rung.trials[-1]]
                    raise UserError(f"all trials have failed; {last.name}: {last.why}")

    def _promote(self, number: int) -> None:
        """Chooses who goes on, and for how long."""
        state, rung = self.state, self.state.rungs[number]
        ranked = state.ranked(state.rungs[number - 1].trials)
        count = self.budget.counts(len(state.rungs[0].trials))[number]
        last = number == len(state.rungs) - 1
        chosen = ranked[:count]
        if last and len(ranked) > count:  # the front has another end
            costs = {n: state.trials[n].cache_bytes or math.inf for n in ranked}
            cheapest = min(ranked, key=lambda name: (costs[name], state.trials[name].loss))
            if cheapest not in chosen and costs[cheapest] < min(costs[n] for n in chosen):
                chosen[-1] = cheapest
        self._fit(number, chosen)
        rung.trials = list(chosen)
        for seed in range(1, self.budget.seeds) if last else ():
            for name in chosen:
                first = state.trials[name]
                again = Trial(
                    **first.model_dump(include={"name", "overrides", "parameters", "cache_bytes"}),
                    seed=first.seed + seed,
                )
                state.trials[f"{name}-seed{again.seed}"] = again
                rung.trials.append(f"{name}-seed{again.seed}")
        self.save()

    def _fit(self, number: int, chosen: Sequence[str]) -> None:
        """Stretches or shrinks the steps to come to the time that is left, as now measured."""
        state, budget = self.state, self.budget
        if budget.steps is not None:
            return
        trials = [state.trials[name] for name in chosen]
        step = statistics.mean(trial.step_seconds for trial in trials)
        before = [state.rungs[number - 1].steps, *(rung.steps for rung in state.rungs[number:])]
        counts = budget.counts(len(state.rungs[0].trials))[number:]
        more = [now - then for then, now in zip(before, before[1:], strict=False)]
        fresh = counts[-1] * (budget.seeds - 1)
        work = sum(n * steps for n, steps in zip(counts, more, strict=True)) + fresh * before[-1]
        starts = state.pilot["start"] * (sum(counts) + fresh)
        share = (self.seconds_left - starts) / max(1e-9, step * work)
        share, at = min(2.0, max(0.2, share)), before[0]
        for rung, steps in zip(state.rungs[number:], more, strict=True):
            at = rung.steps = at + max(1, round(steps * share))

    def _train(self, rung: Rung, number: int, show: Any) -> None:
        """Brings all trials of a rung to its last step, `jobs` at a time."""
        state = self.state
        waiting = [
            name
            for name in rung.trials
            if state.trials[name].state == "going" and rung.steps not in state.trials[name].losses
        ]
        try:
            while waiting or self.going:
                while waiting and len(self.going) < self.jobs:
                    name = waiting.pop(0)
                    trial = state.trials[name]
                    warmup = int(state.pilot["warmup"])
                    self.going[name] = self._process(name, trial, rung.steps, warmup)
                for name in [name for name, process in self.going.items() if process.ended()]:
                    del self.going[name]
                    self._tell(name, rung)
                    self.save()
                self._stop_losers(rung, number)
                show(self._table(number))
                time.sleep(0.3)
        except BaseException:
            for process in self.going.values():
                process.stop()
            self.save()
            raise

    def _process(self, name: str, trial: Trial, steps: int, warmup: int) -> Process:
        pilot = self.state.pilot
        more = steps - trial.steps
        limit = _SLOWEST * (pilot["step"] * more + pilot["start"]) + 60 if pilot else math.inf
        home = self.home / "trials" / name
        return Process(trial, home, steps, warmup, self.words, self.options, limit)

    def _stop_losers(self, rung: Rung, number: int) -> None:
        """Ends trials that are behind the others halfway through a rung that halves."""
        if number == len(self.state.rungs) - 1:
            return
        done = [n for n in rung.trials if rung.steps in self.state.trials[n].losses]
        if len(done) < 3:
            return
        before = self.state.rungs[number - 1].steps if number else 0
        others = [curve_of(self.home / "trials" / name) for name in done]
        for name, process in self.going.items():
            mine = curve_of(self.home / "trials" / name)
            why = is_behind(mine, others, (before + rung.steps) // 2)
            if why:
                process.stop("stopped", why)

    def _tell(self, name: str, rung: Rung) -> None:
        """A line on what became of a trial."""
        trial = self.state.trials[name]
        what = f"val loss {trial.loss:.3f}" if trial.state == "going" else trial.state
        why = f": {trial.why}" if trial.why else ""
        left = duration(max(0.0, self.budget.minutes * 60 - self.state.spent))
        seed = f" seed {trial.seed}" if "-seed" in name else ""
        print(
            f"{trial.name}{seed} · step {trial.steps} of {rung.steps} · {what}{why} · {left} left",
            file=sys.stderr,
            flush=True,
        )

    @contextmanager
    def _screen(self) -> Iterator[Any]:
        """Shows a table on a terminal."""
        console = Console(stderr=True)
        if not console.is_terminal:
            yield lambda table: None
            return
        with Live(console=console, refresh_per_second=2, transient=True) as live:
            yield live.update

    def _table(self, number: int) -> Table:
        rungs = [rung.steps for rung in self.state.rungs]
        table = Table(title=f"rung {number + 1} of {len(rungs)}, up to step {rungs[number]}")
        for column in ("trial", "steps", "val loss", "state"):
            table.add_column(column)
        names = self.state.rungs[number].trials
        for name in sorted(names, key=lambda name: self.state.trials[name].loss):
            trial = self.state.trials[name]
            steps = trial.steps
            if name in self.going:
                steps = max([steps, *curve_of(self.home / "trials" / name)])
            doing = "training" if name in self.going else trial.state
            loss = f"{trial.loss:.3f}" if trial.losses else ""
            table.add_row(f"{trial.name} ({trial.seed})", str(steps), loss, doing)
        return table


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
