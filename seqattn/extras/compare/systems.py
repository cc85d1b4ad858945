"""Runs that were scored alike, grouped into systems by settings that differ except the seed."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from seqattn.errors import UserError
from seqattn.extras.compare.run_results import ComparedRun
from seqattn.roles import Role
from seqattn.training.setting_roles import leaves, role_of

_ASIDE = ("seed", "generation.threshold", "format", "threads")
"""Settings that do not separate systems, besides those of SCORE and NOTE: each model's
threshold is tuned on validation."""
_SAME = (Role.SCORE, Role.NOTE)
_PATH = re.compile(r"(?<![\w./])/[^\s,'\"\]]+")
"""An absolute path within a text."""


class Systems(NamedTuple):
    """Runs by system name, and notes on other differences between systems."""

    runs: dict[str, list[ComparedRun]]
    notes: list[str]


class _Trait(NamedTuple):
    """Setting that differs, and its value in each system."""

    key: str
    values: list[Any]

    def word(self, number: int, bare: bool) -> str:
        value = "null" if self.values[number] is None else str(self.values[number])
        return value if bare else f"{self.key}={value}"


def shortened(values: Sequence[Any]) -> list[Any]:
    """Reduce absolute paths in texts to their last parts, as many as distinguish them."""
    paths = {path: Path(path).parts for value in values for path in _PATH.findall(str(value))}
    different = {*paths.values()}
    ends = range(1, max(map(len, different), default=1) + 1)
    last = next(n for n in ends if len({parts[-n:] for parts in different}) == len(different))
    return [
        _PATH.sub(lambda match: "/".join(paths[match[0]][-last:]), value)
        if isinstance(value, str)
        else value
        for value in values
    ]


def check_alike(runs: Sequence[ComparedRun]) -> None:
    """Raise UserError if the runs were not scored alike.

    Raises:
        UserError: if split, groups, metrics, their signatures, or sentences differ.
    """
    _check_same("evaluated on different splits", {r.path: r.results.split for r in runs})
    _check_same("with different groups of rows", {r.path: f"group={r.group}" for r in runs})
    _check_same("with different metrics", {r.path: " and ".join(r.sentences) for r in runs})
    first = runs[0]
    for run in runs[1:]:
        ours, theirs = ([(row.source, row.references) for row in one.rows] for one in (first, run))
        if ours != theirs:
            raise UserError(
                f"cannot compare runs scored on different sentences: {first.path} on "
                f"{len(ours):,} sentences of {first.results.data}, {run.path} on {len(theirs):,} "
                f"of {run.results.data}"
            )
    for name in first.sentences:
        signatures = {run.path: run.results.scores[name].signature for run in runs}
        _check_same(f"that computed {name} differently", signatures)


def _check_same(words: str, traits: Mapping[Path, str]) -> None:
    values: dict[str, Path] = {}
    for path, value in traits.items():
        values.setdefault(value, path)
    if len(values) > 1:
        each = ", ".join(f"{value} in {path}" for value, path in values.items())
        raise UserError(f"cannot compare runs {words}: {each}; evaluate with the same settings")


def systems_of(runs: Sequence[ComparedRun]) -> Systems:
    """Group runs; names list the settings needed to tell the systems apart.

    Raises:
        UserError: if a system has a seed twice.
    """
    grouped: dict[frozenset[tuple[str, str]], list[ComparedRun]] = {}
    for run in runs:
        grouped.setdefault(frozenset(_settings(run.settings).items()), []).append(run)
    each = list(grouped.values())
    check_seeds((run.path, run.settings) for run in runs)
    if len(each) == 1:
        return Systems({str(runs[0].settings.get("name") or runs[0].path.name): each[0]}, [])
    telling, others = _telling(_traits([same[0] for same in each]), len(each))
    telling = [one._replace(values=shortened(one.values)) for one in telling]
    bare = len(telling) == 1 and isinstance(telling[0].values[0], str) and "." not in telling[0].key
    names = [" ".join(one.word(n, bare) for one in telling) for n in range(len(each))]
    notes = [
        f"{one.key} also differs: {', '.join(dict.fromkeys(map(str, one.values)))}"
        for one in others
    ]
    return Systems(dict(zip(names, each, strict=True)), notes)


def check_seeds(runs: Iterable[tuple[Path, Mapping[str, Any]]]) -> None:
    """Raise UserError if a system has a seed twice. Args: runs: paths with their settings."""
    seen: dict[tuple[object, ...], Path] = {}
    for path, settings in runs:
        system = (frozenset(_settings(settings).items()), settings.get("seed"))
        first = seen.setdefault(system, path)
        if first is not path:
            raise UserError(
                f"{first} and {path} are the same system with seed={settings.get('seed')}; "
                "remove one"
            )


def _settings(plain: Mapping[str, Any]) -> dict[str, str]:
    """Return settings by key, null values omitted, and each path in one spelling."""
    settings = (leaf for name, node in plain.items() for leaf in leaves(node, name))
    return {
        leaf.key: _PATH.sub(lambda match: str(Path(match[0])), str(leaf.value))
        for leaf in settings
        if leaf.value is not None and leaf.key not in _ASIDE and leaf.role not in _SAME
    }


def _traits(runs: Sequence[ComparedRun]) -> list[_Trait]:
    """Return settings that differ: choices of groups first, then values that no choice implies."""
    chosen: list[Mapping[str, str]] = [run.settings.get("choices") or {} for run in runs]
    named = {group for one in chosen for group in one} - {"experiment", "generation"}
    groups = sorted(group for group in named if role_of(group) not in _SAME)
    choices = [_Trait(group, [one.get(group) for one in chosen]) for group in groups]
    settings = [_settings(run.settings) for run in runs]
    choices += [  # settings of the evaluation, which the names of runs lack
        _Trait(root, [one.get(f"{root}._target_", "").rpartition(".")[2] for one in settings])
        for root in ("generation", "scorer")
    ]
    choices = [one for one in choices if len(set(one.values)) > 1]
    by_root = {one.key.rpartition("@")[2]: one for one in choices}
    values = []
    for key in sorted({key for one in settings for key in one}):
        trait = _Trait(key, [one.get(key) for one in settings])
        choice = by_root.get(re.split(r"[.\[]", key)[0])
        before = len(set(choice.values)) if choice else 1
        together = zip(choice.values if choice else [None] * len(runs), trait.values, strict=True)
        if len(set(together)) > before:
            values.append(trait)
    return [*choices, *values]


def _telling(traits: Sequence[_Trait], count: int) -> tuple[list[_Trait], list[_Trait]]:
    """Split traits into the first ones that make all systems distinct, and the others."""
    telling: list[_Trait] = []
    others: list[_Trait] = []
    for trait in traits:
        distinct = len(set(zip(*(one.values for one in telling), strict=True))) if telling else 1
        more = len(set(zip(*(one.values for one in [*telling, trait]), strict=True)))
        (telling if more > distinct and distinct < count else others).append(trait)
    return telling, others
