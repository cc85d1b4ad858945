"""Successive halving: many models for a few steps, the better of them for more."""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le, MinLen
from pydantic import BaseModel, ValidationError

from seqattn.checking import Count, checked
from seqattn.errors import UserError
from seqattn.runs.searching.search_trials import Process, Trial, behind, curve_of
from seqattn.storage import write_whole
from seqattn.training.screen import duration

STATE = "trials.json"
PILOT = "pilot"
"""The trial that says how long a step takes, and makes the vocabulary."""
_PILOT_STEPS = (20, 40)
_RESERVED = 0.1  # share of the time that is for scoring and timing the finalists
_CAUTION = 1.2  # how much longer than the pilot's a model's step may take on average
_SLOWEST = 4.0  # and at most


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
    first_steps: Annotated[int, Ge(20), Le(10**9)] = 100
    steps: Annotated[list[Count], MinLen(1)] | None = None
    factor: Annotated[int, Ge(2), Le(10)] = 3
    finalists: Annotated[int, Ge(2), Le(100)] = 3
    seeds: Annotated[int, Ge(1), Le(100)] = 2

    def __post_init__(self) -> None:
        if self.steps is not None and sorted(set(self.steps)) != self.steps:
            raise UserError(f"budget.steps must rise, got {self.steps}")

    def counts(self, candidates: int) -> list[int]:
        """How many models there are in each rung, those of the last without their seeds."""
        last = min(self.finalists, candidates)
        rungs = 1 + math.ceil(math.log(candidates / last, self.factor) - 0.5)
        rungs = max(rungs, 1 + (candidates > last))
        rungs = len(self.steps) if self.steps else rungs
        shares = [number / max(1, rungs - 1) for number in range(rungs)]
        return [round(candidates * (last / candidates) ** share) for share in shares]

    def plan(self, candidates: int, step: float, start: float, seconds: float) -> list[int]:
        """Steps at the end of each rung that use up some seconds.

        Args:
            candidates: models of the first rung.
            step: seconds that a step takes.
            start: seconds that a process takes beside its steps.
            seconds: of all cores together.
        """
        counts = self.counts(candidates)
        growth = [self.factor**number for number in range(len(counts))]
        starts, units = self.work(counts, [0, *growth])
        first = (seconds - start * starts) / (step * units)
        return [int(first * one) for one in growth]

    def work(self, counts: Sequence[int], ends: Sequence[int]) -> tuple[int, int]:
        """Processes and steps of rungs. Args: ends: the step before the first rung, and of each."""
        fresh = counts[-1] * (self.seeds - 1)
        more = sum(n * (b - a) for n, (a, b) in zip(counts, pairwise(ends), strict=True))
        return sum(counts) + fresh, more + fresh * ends[-1]


class Rung(BaseModel):
    """Trials that are trained up to the same step, and compared there."""

    steps: int
    trials: list[str] = []


class SearchState(BaseModel):
    """All that a search knows; written after each change."""

    settings: dict[str, Any] = {}
    """What the search was told."""
    drawn: list[str] = []
    """What was drawn from the space, in words."""
    pilot: dict[str, float] = {}
    """Seconds of a step and of a start, and steps of warm-up."""
    rungs: list[Rung] = []
    trials: dict[str, Trial] = {}
    spent: float = 0.0
    """Seconds, over all times that the search went on."""

    @classmethod
    def read(cls, home: Path) -> SearchState:
        """That of a folder; a new one where there is none.

        Raises:
            UserError: it cannot be read.
        """
        file = home / STATE
        try:
            return cls.model_validate_json(file.read_bytes()) if file.is_file() else cls()
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
        words: the command line of train that all trials share.
        options: of Hydra.
    """

    home: Path
    state: SearchState
    budget: Budget
    jobs: int
    words: Sequence[str]
    options: Sequence[str] = ()
    going: dict[str, Process] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._saved = time.monotonic()

    def save(self) -> None:
        """Writes the state, with the time since it was last written."""
        now = time.monotonic()
        self.state.spent, self._saved = self.state.spent + now - self._saved, now
        write_whole(self.home / STATE, self.state.model_dump_json(indent=1).encode())

    def folder(self, name: str) -> Path:
        """Of a trial."""
        return self.home / "trials" / name

    @property
    def _seconds_left(self) -> float:
        """Of training, all cores together."""
        return (self.budget.minutes * 60 * (1 - _RESERVED) - self.state.spent) * self.jobs

    def try_out(self) -> None:
        """Trains the run's own model for a moment.

        Raises:
            UserError: it cannot be trained.
        """
        trial = Trial(name=PILOT, overrides=[], seed=1)
        for steps in _PILOT_STEPS:  # the first prepares, the second is measured
            before = trial.seconds
            process = Process(trial, self.folder(PILOT), steps, 10, self.words, self.options)
            try:
                while not process.ended():
                    time.sleep(0.1)
            except BaseException:
                process.stop()
                raise
            if trial.state == "failed":
                raise UserError(f"the run that is searched around fails: {trial.why}")
        start = max(0.0, process.wall - (trial.seconds - before))
        self.state.pilot = {"step": trial.step_seconds, "start": start}
        self.save()

    def plan(self, candidates: int) -> list[int]:
        """Steps of the rungs for so many models."""
        step, start = self.state.pilot["step"] * _CAUTION, self.state.pilot["start"]
        return self.budget.plan(candidates, step, start, self._seconds_left)

    def most(self, candidates: int) -> int:
        """How many models can be compared after `first_steps`, of so many at most.

        Raises:
            UserError: where the minutes are too few for the finalists alone.
        """
        budget = self.budget
        fewest = min(budget.finalists, candidates)
        for count in range(candidates, fewest - 1, -1):
            if self.plan(count)[0] >= budget.first_steps:
                return count
        raise UserError(
            f"budget.minutes={budget.minutes:g} is too little: here a step takes "
            f"{self.state.pilot['step']:.2g} seconds and a start {self.state.pilot['start']:.2g}, "
            f"and {fewest} finalists of {budget.seeds} seeds need {budget.first_steps} steps each; "
            "give more, or lower budget.finalists, budget.seeds or budget.first_steps"
        )

    def run(self) -> list[str]:
        """Trains rung after rung; returns the trials of the last, the best loss first.

        Raises:
            UserError: where all trials of a rung have failed.
        """
        for number, rung in enumerate(self.state.rungs):
            if not rung.trials:
                self._promote(number)
            self._train(rung, self.state.rungs[number - 1].steps if number else 0)
            if not self.state.ranked(rung.trials):
                last = self.state.trials[rung.trials[-1]]
                raise UserError(f"all trials have failed; {last.name}: {last.why}")
        return self.state.ranked(self.state.rungs[-1].trials)

    def _promote(self, number: int) -> None:
        """Chooses who goes on, and for how long."""
        state, rung = self.state, self.state.rungs[number]
        ranked = state.ranked(state.rungs[number - 1].trials)
        chosen = ranked[: self.budget.counts(len(state.rungs[0].trials))[number]]
        is_last = number == len(state.rungs) - 1
        if is_last:  # a seat for the smallest cache, so that the front has another end
            caches = {name: state.trials[name].cache_bytes or math.inf for name in ranked}
            smallest = min(ranked, key=lambda name: caches[name])
            if len(chosen) > 1 and caches[smallest] < min(caches[name] for name in chosen):
                chosen[-1] = smallest
        self._fit(number, chosen)
        rung.trials = list(chosen)
        if is_last:
            self.add_seeds(rung)
        self.save()

    def add_seeds(self, rung: Rung) -> None:
        """Other seeds of all models of the last rung."""
        trials = self.state.trials
        for seed, name in product(range(1, self.budget.seeds), tuple(rung.trials)):
            same = trials[name]
            kept = same.model_dump(include={"name", "overrides", "parameters", "cache_bytes"})
            again = f"{name}-seed{same.seed + seed}"
            trials[again] = Trial(**kept, seed=same.seed + seed)
            rung.trials.append(again)

    def _fit(self, number: int, chosen: Sequence[str]) -> None:
        """Stretches or shrinks the steps to the time that is left, as models are now known."""
        state, rungs = self.state, self.state.rungs[number:]
        if self.budget.steps is not None:
            return
        step = statistics.mean(state.trials[name].step_seconds for name in chosen)
        ends = [state.rungs[number - 1].steps, *(rung.steps for rung in rungs)]
        counts = self.budget.counts(len(state.rungs[0].trials))[number:]
        starts, steps = self.budget.work(counts, ends)
        share = (self._seconds_left - state.pilot["start"] * starts) / max(1e-9, step * steps)
        share, at = min(2.0, max(0.2, share)), ends[0]
        for rung, (before, after) in zip(rungs, pairwise(ends), strict=True):
            at = rung.steps = at + max(1, round((after - before) * share))

    def _train(self, rung: Rung, before: int) -> None:
        """Brings all trials of a rung from one step to the next, `jobs` at a time."""
        going = (name for name in rung.trials if self.state.trials[name].state == "going")
        waiting = [name for name in going if rung.steps not in self.state.trials[name].losses]
        try:
            while waiting or self.going:
                while waiting and len(self.going) < self.jobs:
                    self._start(waiting.pop(0), rung.steps)
                for name in [name for name, process in self.going.items() if process.ended()]:
                    del self.going[name]
                    self._tell(name, rung)
                    self.save()
                if rung is not self.state.rungs[-1]:
                    self._stop_losers(rung, before)
                time.sleep(0.3)
        except BaseException:
            for process in self.going.values():
                process.stop()
            self.save()
            raise

    def _start(self, name: str, steps: int) -> None:
        trial, pilot = self.state.trials[name], self.state.pilot
        usual = pilot["step"] * (steps - trial.steps) + pilot["start"]
        self.going[name] = Process(
            trial, self.folder(name), steps, int(pilot["warmup"]), self.words, self.options,
            60 + _SLOWEST * usual,
        )  # fmt: skip

    def _stop_losers(self, rung: Rung, before: int) -> None:
        """Ends trials whose losses are behind those of the others halfway through a rung."""
        done = [name for name in rung.trials if rung.steps in self.state.trials[name].losses]
        others = [curve_of(self.folder(name)) for name in done]
        middle, late = (before + share * (rung.steps - before) for share in (0.5, 0.8))
        for name, process in self.going.items():
            curve = curve_of(self.folder(name))
            why = behind(curve, others, middle)
            if why and max(curve) < late:
                process.stop("stopped", why)

    def _tell(self, name: str, rung: Rung) -> None:
        """A line on what became of a trial."""
        trial = self.state.trials[name]
        done = [one for one in rung.trials if rung.steps in self.state.trials[one].losses]
        what = f"{trial.state}: {trial.why}" if trial.why else f"val loss {trial.loss:.3f}"
        left = duration(max(0.0, self.budget.minutes * 60 - self.state.spent))
        print(
            f"{trial.name} (seed {trial.seed}) · step {trial.steps} of {rung.steps} · {what} · "
            f"{len(done)} of {len(rung.trials)} · {left} left",
            file=sys.stderr,
            flush=True,
        )
