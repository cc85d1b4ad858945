"""Successive halving: many models for a few steps, the better of them for more."""

import math
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from pathlib import Path

from seqattn.errors import UserError
from seqattn.extras.search.search_budget import Budget
from seqattn.extras.search.search_trials import (
    STATE,
    Process,
    Rung,
    SearchState,
    Trial,
    behind,
    curve_of,
)
from seqattn.storage import write_whole
from seqattn.training.screen import duration

PILOT = "pilot"
"""The trial that says how long a step takes, and makes the vocabulary."""
_PILOT_STEPS = (20, 40)
_RESERVED = 0.1  # share of the time that is for scoring and timing the finalists
_CAUTION = 1.2  # how much longer than the pilot's a model's step may take on average
_SLOWEST = 4.0  # and at most


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
