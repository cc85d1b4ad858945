"""A search for the model that suits some data under a budget."""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from seqattn.bundle.architecture import Vocabularies
from seqattn.bundle.nodes import build
from seqattn.checking import Count, Seed, checked
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.extras.search.search_budget import Budget
from seqattn.extras.search.search_halving import PILOT, Halving
from seqattn.extras.search.search_report import report
from seqattn.extras.search.search_space import SearchSpace
from seqattn.extras.search.search_trials import Rung, SearchState, Trial
from seqattn.processes import cores
from seqattn.runs.made_from import data_contents
from seqattn.runs.run_directory import claimed

_NOT_HERE = ("search", "resume", "init_from", "embeddings", "find_lr")
"""Keys of train that no search takes."""
_FEWEST = 20  # steps that tell anything


@checked
@dataclass(frozen=True, kw_only=True)
class ModelSearch:
    """Which attention, heads, window, position, depth and width suit some data.

    Many models are trained for a few steps, the better of them for more (successive halving,
    Jamieson and Talwalkar 2016, arXiv 1502.07943), all on the same batches. What the last of them
    cost to run is measured (after HAT, Wang et al. 2020, arXiv 2005.14187).

    Args:
        run_dir: where its files go; the same command goes on there.
        settings: of a training, as `Training` takes them.
        overrides: the command line of that training, by which its trials are started.
        values: these overrides, as values by their keys.
        space: what is varied.
        budget: what it may take.
        jobs: trials at a time, each with a thread; None for all cores, one where a GPU trains.
        seed: of the draw and of the first training.
        options: of Hydra: --config-dir and hydra.searchpath.

    Raises:
        UserError: for a key of training that a search has no use for.
    """

    run_dir: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    overrides: Sequence[str] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    space: SearchSpace = field(default_factory=SearchSpace)
    budget: Budget = field(default_factory=Budget)
    jobs: Count | None = None
    seed: Seed = 1
    options: Sequence[str] = ()

    def __post_init__(self) -> None:
        for word in self.overrides:
            key = word.partition("=")[0]
            if key in _NOT_HERE or key[:1] in "+~":
                raise UserError(f"a search takes no {key}; leave it out")
        if isinstance(self.settings.get("attention"), list):
            raise UserError("a search takes one attention for all layers; leave the list out")

    def run(self) -> None:
        """Searches, or goes on; writes the report and the best as an experiment.

        Raises:
            UserError: where nothing can be trained, or the folder holds another search.
        """
        home = Path(self.run_dir)
        with claimed(home):
            state = self._state(home)
            if not state.rungs:
                self._check_space()
            race = Halving(home, state, self.budget, self._jobs, self.overrides, self.options)
            try:
                if not state.pilot:
                    race.try_out()
                if not state.rungs:
                    self._draw(race)
                print(*state.drawn, sep="\n", file=sys.stderr)
                found = race.run()
                print("timing the finalists in turns", file=sys.stderr)
                groups: dict[str, list[Path]] = {}
                for name in sorted(found):
                    groups.setdefault(state.trials[name].name, []).append(race.folder(name))
                lines = report(home, state, groups, self.values, self.options)
            except KeyboardInterrupt:
                print("the same command goes on", file=sys.stderr)
                raise
            race.save()
            print(*lines, sep="\n")

    @property
    def _jobs(self) -> int:
        on_cpu = build(self.settings["trainer"], "trainer").on_cpu
        return self.jobs or (cores() if on_cpu else 1)

    def _state(self, home: Path) -> SearchState:
        """What is known so far, of the same search."""
        state = SearchState.read(home)
        told = {
            "overrides": sorted(self.overrides), "space": asdict(self.space),
            "budget": asdict(self.budget), "seed": self.seed,
            "data": data_contents(build(self.settings["data"], "data"), ("train", "val")),
        }  # fmt: skip
        bound = [*told] if state.rungs else ["overrides", "data"]  # which the pilot depends on
        others = ", ".join(key for key in bound if state.settings.get(key) != told[key])
        if state.settings and others:
            raise UserError(
                f"run_dir={home} holds a search with other {others}; give the same, or name "
                "another directory"
            )
        state.settings = told
        return state

    def _check_space(self) -> None:
        """Refuses a space that holds no second model, before any training."""
        drawn = self.space.draw(self.settings, lambda _: 2, self.seed)
        if len(drawn.candidates) < 2:
            raise UserError(f"the space holds no second model that can be; {drawn.told[-1]}")

    def _draw(self, race: Halving) -> None:
        """Draws the models that the first rung compares."""
        state, budget = race.state, self.budget

        def most(combinations: int) -> int:
            free = budget.candidates is None and budget.steps is None
            return race.most(combinations) if free else budget.candidates or combinations

        drawn = self.space.draw(self.settings, most, self.seed)
        count = len(drawn.candidates)
        steps = budget.steps or race.plan(count)
        if budget.steps is None and steps[0] < _FEWEST:
            raise UserError(
                f"budget.minutes={budget.minutes:g} is too little for {count} models; give more, "
                "or lower budget.candidates"
            )
        own = self.settings["schedule"].get("warmup_steps", steps[0])
        state.pilot["warmup"] = max(1, min(own, steps[0] // 2))
        tokenizer = Tokenizer.load(race.folder(PILOT) / "tokenizer")
        sizes = Vocabularies.of(tokenizer)
        for number, one in enumerate(drawn.candidates):
            name = "-".join([f"{number:03}", *re.findall(r"\w+", one.name)])
            state.trials[name] = Trial(
                name=one.name, overrides=[*one.overrides], seed=self.seed, **one.sizes(sizes)
            )
        state.drawn = drawn.told
        state.rungs = [Rung(steps=step) for step in steps]
        state.rungs[0].trials = list(state.trials)
        if len(steps) == 1:
            race.add_seeds(state.rungs[0])
        race.save()
