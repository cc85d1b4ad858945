"""Tuning of a search's settings on the validation split."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from seqattn.bundle.bundle import Bundle
from seqattn.checking import shown
from seqattn.data.base import Texts
from seqattn.errors import UserError
from seqattn.generation.base import Hypothesis, Progress, Search
from seqattn.generation.beam import BeamSearch
from seqattn.metrics.references import reference_lists
from seqattn.metrics.several import check_sentences
from seqattn.metrics.significance import LEVEL, sentence_tests
from seqattn.metrics.text import Scorer, TextScore, lower_is_better
from seqattn.screen import print_table
from seqattn.settings.nodes import Node, build, with_settings
from seqattn.subcommands.reranking import Reranker, Reranking

Settings = dict[str, float]
"""Values by dotted keys of the search, and `rerank.weight`."""
_TRIALS = 1000
_PENALTY, _WEIGHT = "length_penalty", "rerank.weight"


def grid_of(tune: Mapping[str, Any], place: str = "tune") -> dict[str, list[float]]:
    """Return the values to try for each key, nested keys with dots.

    Raises:
        UserError: if a value is not a list of numbers.
    """
    grid: dict[str, list[float]] = {}
    for key, values in tune.items():
        if isinstance(values, Mapping):
            nested = grid_of(values, f"{place}.{key}")
            grid |= {f"{key}.{name}": tried for name, tried in nested.items()}
        elif isinstance(values, list) and values and all(type(x) in (int, float) for x in values):
            grid[str(key)] = list(dict.fromkeys(values))
        else:
            raise UserError(
                f"{place}.{key} must be a list of numbers such as [0.6,1.0], got {shown(values)}"
            )
    return grid


class Trial(NamedTuple):
    """Outputs and scores with some settings."""

    settings: Settings
    outputs: list[str]
    scores: list[TextScore]
    p: float | None = None
    """p-value of no difference from the best; None for the best."""


@dataclass(frozen=True)
class Tuning:
    """Grid search over settings, with significance tests against the best.

    A beam that stops at its K-th finished hypothesis is the same for every length penalty, which
    only ranks finished hypotheses: so one search serves all penalties, exactly.

    Args:
        bundle: the bundle to tune.
        search: node of the search.
        grid: values to try, from `grid_of`.
        scorer: its first score selects the best.
        rerank, reranker: reranking; None for no reranker.

    Raises:
        UserError: for a key or a value that the search does not accept.
    """

    bundle: Bundle
    search: Node
    grid: Mapping[str, Sequence[float]]
    scorer: Scorer
    rerank: Reranking = field(default_factory=Reranking)
    reranker: Reranker | None = None

    def __post_init__(self) -> None:
        if _WEIGHT in self.grid and self.reranker is None:
            raise UserError(f"tune.{_WEIGHT} needs a reranking model; add rerank.bundle=PATH")
        check_sentences(self.scorer, "tune")
        for values in itertools.product(*self.grid.values()):  # some are only valid together
            self.with_settings(dict(zip(self.grid, values, strict=True)))

    def with_settings(self, settings: Settings) -> Search:
        """Return the search with some of its settings changed."""
        search: Search = build(self.node(settings), "generation")
        return search

    def node(self, settings: Settings) -> Node:
        """Return the node of that search, without `rerank.weight`."""
        node = self.search
        for key, value in settings.items():
            *path, last = key.split(".")
            nested: Any = {last: value}
            for name in reversed(path):
                nested = {name: nested}
            node = node if key == _WEIGHT else with_settings(node, nested)
        return node

    def run(self, texts: Texts, progress: Progress) -> list[Trial]:
        """Return all trials on a split with references, best first."""
        total, trials = math.prod(map(len, self.grid.values())), list[Trial]()
        for trial in self._trials(texts):
            trials.append(trial)
            progress(len(trials), total)
        lower = lower_is_better(self.scorer, trials[0].scores[0].name)
        trials.sort(key=lambda trial: trial.scores[0].value, reverse=not lower)
        lists = reference_lists(texts.references, len(texts.sources))
        counts = (self.scorer.sentences(trial.outputs, lists)[0] for trial in trials)
        best, *others = (one.by_group(texts.groups) for one in counts)
        p_values = [
            sentence_tests({"best": [best], "other": [other]}, _TRIALS, _TRIALS)["best", "other"]
            for other in others
        ]
        tested = zip(trials[1:], p_values, strict=True)
        return [trials[0], *(trial._replace(p=test.randomization) for trial, test in tested)]

    def _trials(self, texts: Texts) -> Iterator[Trial]:
        weights: Sequence[float | None] = self.grid.get(_WEIGHT) or [None]
        for settings, lists in self._lists(texts.sources):
            for weight in weights:
                tried = settings if weight is None else {**settings, _WEIGHT: weight}
                ranked: Sequence[Sequence[Hypothesis]] = lists
                if self.reranker is not None:
                    own = self.reranker.weight if weight is None else weight
                    ranked = replace(self.reranker, weight=own).rank(texts.sources, lists)
                best = [some[0].ids for some in ranked]
                outputs = self.bundle.tokenizer.decode_target(best)
                scores = self.scorer.score(outputs, texts.references, texts.sources)
                yield Trial({key: tried[key] for key in self.grid}, outputs, scores)

    def _lists(self, sources: Sequence[str]) -> Iterator[tuple[Settings, list[list[Hypothesis]]]]:
        """Yield settings, except a reranker's weight, with the hypotheses of each source."""
        read, penalties = self.bundle.encode(sources), self.grid.get(_PENALTY) or []
        unsplit = all(len(windows) == 1 for windows in read)
        names = [key for key in self.grid if key not in (_WEIGHT, _PENALTY)]
        for values in itertools.product(*(self.grid[name] for name in names)):
            settings = dict(zip(names, values, strict=True))
            search = self.rerank.search(self.with_settings(settings))
            if penalties and unsplit and _ranks_at_last(search):
                shared = replace(AllFinished(**vars(search)), length_penalty=1.0)
                lists = self.bundle.generator(shared).generate([ids for (ids,) in read])
                for penalty in penalties:
                    best = [_ranked(hypotheses, penalty)[: search.n_best] for hypotheses in lists]
                    yield {**settings, _PENALTY: penalty}, best
                continue
            for own in [{**settings, _PENALTY: one} for one in penalties] or [settings]:
                search = self.rerank.search(self.with_settings(own))
                yield own, self.bundle.generator(search).generate_windows(read)


@dataclass(frozen=True)
class AllFinished(BeamSearch):
    """Beam search that returns all finished hypotheses. Args: as `BeamSearch`."""

    @property
    def returned(self) -> int:
        return 3 * self.beam_size  # early stopping finishes fewer


def _ranks_at_last(search: Any) -> bool:
    """Return True if the length penalty only affects the final ranking."""
    return type(search) is BeamSearch and search.early_stopping and not search.coverage_penalty


def _ranked(hypotheses: Sequence[Hypothesis], penalty: float) -> list[Hypothesis]:
    """Rank hypotheses, whose scores are log p / n, by log p / n^penalty."""
    scored = [
        one._replace(score=one.log_probability / round(one.log_probability / one.score) ** penalty)
        if one.score else one
        for one in hypotheses
    ]  # fmt: skip
    return sorted(scored, key=lambda one: -one.score)


def show(title: str, trials: Sequence[Trial]) -> str:
    """Print a table of trials with significance; return the best settings as overrides."""
    best, *others = trials
    names = [score.name for score in best.scores]
    rows = {
        ", ".join(f"{key}={value}" for key, value in trial.settings.items()): [
            *(f"{score.value:.2f}" for score in trial.scores),
            "best" if trial.p is None else f"{trial.p:.3f}",
        ]
        for trial in trials
    }
    keys = {key: key if key == _WEIGHT else f"generation.{key}" for key in best.settings}
    typed = " ".join(f"{keys[key]}={value}" for key, value in best.settings.items())
    alike = sum(trial.p is not None and trial.p >= LEVEL for trial in others)
    sure = (
        f"not significantly different from the best: {alike} of {len(others)} (paired approximate "
        f"randomization on {len(best.outputs):,} sentences, p >= {LEVEL})"
    )
    if others and alike == len(others):
        sure += "; no reason to change the settings"
    signatures = [f"{score.name}: {score.signature}" for score in best.scores]
    print_table(title, rows, [*names, f"p ({names[0]})"], [*signatures, f"best: {typed}", sure])
    return typed
