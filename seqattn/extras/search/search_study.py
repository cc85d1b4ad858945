"""Successive halving of models, each trained in a process of its own, in an Optuna study."""

import math
import re
import sys
import time
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, Trial, TrialState

from seqattn.errors import UserError
from seqattn.extras.compare.costs import sizes_of
from seqattn.extras.search.search_journal import distributions, is_log, open_study
from seqattn.extras.search.search_options import SearchOptions
from seqattn.extras.search.search_runs import TrainingRun, command, stop, train_all
from seqattn.extras.search.search_space import Candidate, applied, value_at
from seqattn.screen import duration
from seqattn.settings.assembly import Architecture, Vocabularies
from seqattn.training.resume import RESULT

_TRYING, _TRAINING = 0.5, 0.9
"""Shares of the minutes after which no more models and no more finalists are started."""


class Halving:
    """Successive halving of models until finalists remain, which are trained to the end.

    Args:
        search: the search with its settings.
        candidates: models to try, the run's own first.
        jobs: concurrent training runs.
        made_from: plain values that must stay the same to resume.

    Raises:
        UserError: if the directory holds another search, or a damaged one.
    """

    def __init__(
        self,
        search: SearchOptions,
        candidates: list[Candidate],
        jobs: int,
        made_from: dict[str, Any],
    ) -> None:
        self.search, self.budget, self.jobs = search, search.budget, jobs
        self.run_dir, self.ranges = Path(search.run_dir), search.space.ranges or {}
        self._models = {candidate.name: candidate for candidate in candidates}
        self._space = distributions([*self._models], self.ranges)
        self.study, self._interrupted = open_study(
            self.run_dir, self.budget, search.seed, self._space, made_from
        )
        self._earlier, self._since = self.study.user_attrs.get("spent", 0.0), time.monotonic()
        self._trials: dict[str, Trial] = {}
        self._is_prepared = False
        values = {
            key: min(max(value_at(key, search.settings), low), high)
            for key, (low, high) in self.ranges.items()
        }
        base = {"model": candidates[0].name, **values}
        self._base_model = self.candidate(base)
        grid = [] if self.ranges else [{"model": candidate.name} for candidate in candidates[1:]]
        for params in [base, *grid]:  # Optuna samples a space with ranges
            self.study.enqueue_trial(params, skip_if_exists=True)

    @property
    def seconds_spent(self) -> float:
        """Seconds spent so far, in all invocations of the command."""
        return self._earlier + time.monotonic() - self._since

    def save(self) -> None:
        """Write the seconds spent so far."""
        self.study.set_user_attr("spent", self.seconds_spent)

    def candidate(self, params: Mapping[str, Any]) -> Candidate:
        """Return the model of a trial, with values of ranges rounded to three digits."""
        model = self._models[params["model"]]
        values = [f"{key.rpartition('.')[2]}={params[key]:.3g}" for key in self.ranges]
        words = [f"{key}={params[key]:.2e}" for key in self.ranges]
        return Candidate(" ".join([model.name, *values]), (*model.overrides, *words))

    def latest(self) -> dict[str, FrozenTrial]:
        """Return the last trial of each model that was started, by the model's name."""
        started = [t for t in self.study.trials if t.params.keys() == self._space.keys()]
        return {self.candidate(trial.params).name: trial for trial in started}

    def ranked(self, trials: Mapping[str, FrozenTrial]) -> list[str]:
        """Return the names of models, those trained longest first, then by loss."""
        steps = {name: trial.last_step or 0 for name, trial in trials.items()}
        loss = {name: trial.intermediate_values.get(steps[name]) for name, trial in trials.items()}
        return sorted(trials, key=lambda name: (-steps[name], loss[name] or math.inf))

    def try_models(self) -> None:
        """Train models until each is complete or pruned, or their share of the time is spent.

        Raises:
            UserError: if the run's own model cannot be trained, or the minutes are too few.
        """
        train_all(self._starts(), self.jobs, self._report)

    def _is_over(self, share: float) -> bool:
        """Return True once a share of the minutes is spent."""
        return self.seconds_spent > share * self.budget.minutes * 60

    def _starts(self) -> Iterator[TrainingRun | None]:
        while not self._is_over(_TRYING):
            if self._trials and not self._is_prepared:  # the first run prepares the data for all
                yield None
                continue
            waiting = self.study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
            max_models = (self.budget.candidates or math.inf) if self.ranges else 0
            if not (self._interrupted or waiting or len(self.latest()) < max_models):
                return
            trial = self._interrupted.pop(0) if self._interrupted else self.study.ask()
            model = self._sampled(trial)
            self._trials[model.name] = trial
            run = self._start(model, self.search.seed)
            losses = self.study.trials[trial.number].intermediate_values
            run.step = max(losses, default=0)
            run.loss = losses.get(run.step, math.nan)
            yield run

    def _sampled(self, trial: Trial) -> Candidate:
        """Return the model of a trial, sampling it if it has none yet."""
        trial.suggest_categorical("model", [*self._models])
        for key, (low, high) in self.ranges.items():
            trial.suggest_float(key, low, high, log=is_log(low, high))
        return self.candidate(trial.params)

    def _run_dir(self, model: Candidate, seed: int) -> Path:
        again = [] if seed == self.search.seed else [f"seed{seed}"]
        return self.run_dir / "trials" / "-".join([*re.findall(r"[\w.+]+", model.name), *again])

    def _start(self, model: Candidate, seed: int) -> TrainingRun:
        path = self._run_dir(model, seed)
        return TrainingRun(model.name, path, command(self.search, model, path, seed))

    def _report(self, run: TrainingRun) -> bool:
        """Report new losses of a run to the study; return True once it has ended."""
        trial, has_ended = self._trials[run.name], run.has_ended()
        self._is_prepared |= has_ended
        for step, loss in run.new_losses():
            self._is_prepared = True
            trial.report(loss, step)
            if step < self.budget.steps and trial.should_prune():
                stop([run])
                return self._end(run, TrialState.PRUNED, f"not in the best 1/{self.budget.factor}")
        if has_ended:
            why = run.failure()
            if why and run.name == self._base_model.name:
                raise UserError(f"the run's own model {why}")
            return self._end(run, TrialState.FAIL if why else TrialState.COMPLETE, why)
        return self._times_out(run, _TRYING)

    def _times_out(self, run: TrainingRun, share: float) -> bool:
        if not self._is_over(share):
            return False
        stop([run])  # with more minutes, a study resumes the trials in state RUNNING
        return self._say(run, "out of time")

    def _end(self, run: TrainingRun, state: TrialState, why: str) -> bool:
        trial = self._trials[run.name]
        if why:
            trial.set_user_attr("why", why)
        self.study.tell(trial, run.loss if state is TrialState.COMPLETE else None, state)
        return self._say(run, why)

    def _say(self, run: TrainingRun, why: str) -> bool:
        """Print the outcome of a run and save; always return True."""
        remaining = duration(max(0.0, self.budget.minutes * 60 - self.seconds_spent))
        parts = [
            run.run_dir.name, f"step {run.step} of {self.budget.steps}",
            f"val loss {run.loss:.3f}" if run.step else "", why, f"{remaining} left",
        ]  # fmt: skip
        print(" · ".join(filter(None, parts)), file=sys.stderr, flush=True)
        self.save()
        return True

    def _finalists(self) -> list[Candidate]:
        """Return the longest-trained models with the lowest loss, one of them with a small cache.

        Raises:
            UserError: if all have failed.
        """
        trials = {
            name: trial
            for name, trial in self.latest().items()
            if trial.last_step and trial.state is not TrialState.FAIL
        }
        ranked = self.ranked(trials)
        if not ranked:
            raise UserError("no model reached its first validation; increase budget.minutes")
        chosen = ranked[: self.budget.finalists]

        def cache(name: str) -> float:
            overrides = self._models[trials[name].params["model"]].overrides
            architecture = Architecture.of(applied(overrides, self.search.settings))
            sizes = sizes_of(architecture.build(Vocabularies(8, 8, True)).eval())
            return sizes.get("cache_bytes", math.inf)

        smallest = min(ranked[: max(len(chosen), len(ranked) // 2)], key=cache)
        if len(chosen) > 1 and cache(smallest) < min(map(cache, chosen)):
            chosen[-1] = smallest
        return [self.candidate(trials[name].params) for name in chosen]

    def train_finalists(self) -> None:
        """Train finalists to the end with all seeds, as far as time allows."""
        finalists = self._finalists()
        starts = (
            self._start(model, seed)
            for seed, model in product(self._seeds, finalists)
            if not self._is_over(_TRAINING) and not (self._run_dir(model, seed) / RESULT).is_file()
        )
        train_all(starts, self.jobs, self._has_ended)

    def _has_ended(self, run: TrainingRun) -> bool:
        has_ended, _ = run.has_ended(), [*run.new_losses()]
        if not has_ended:
            return self._times_out(run, _TRAINING)
        return self._say(run, run.failure())

    @property
    def _seeds(self) -> range:
        return range(self.search.seed, self.search.seed + self.budget.seeds)

    def runs_of_finalists(self) -> dict[Candidate, list[Path]]:
        """Return the finished runs of each finalist.

        Raises:
            UserError: if there is none.
        """
        runs = {
            model: [self._run_dir(model, seed) for seed in self._seeds]
            for model in self._finalists()
        }
        finished = {
            model: [path for path in paths if (path / RESULT).is_file()]
            for model, paths in runs.items()
        }
        if not any(finished.values()):
            raise UserError(
                "no finalist completed training; increase budget.minutes, or lower budget.steps in "
                "another run_dir"
            )
        return {model: paths for model, paths in finished.items() if paths}
