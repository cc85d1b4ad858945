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
_IGNORED_ROLES = (Role.SCORE, Role.NOTE)
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
        first_rows, rows = ([(row.source, row.references) for row in r.rows] for r in (first, run))
        if first_rows != rows:
            raise UserError(
                f"cannot compare runs scored on different sentences: {first.path} on "
                f"{len(first_rows):,} sentences of {first.results.data}, {run.path} on "
                f"{len(rows):,} of {run.results.data}"
            )
    for name in first.sentences:
        signatures = {run.path: run.results.scores[name].signature for run in runs}
        _check_same(f"that computed {name} differently", signatures)


def _check_same(words: str, traits: Mapping[Path, str]) -> None:
    values: dict[str, Path] = {}
    for path, value in traits.items():
        values.setdefault(value, path)
    if len(values) > 1:
        found_in = ", ".join(f"{value} in {path}" for value, path in values.items())
        raise UserError(f"cannot compare runs {words}: {found_in}; evaluate with the same settings")


def systems_of(runs: Sequence[ComparedRun]) -> Systems:
    """Group runs; names list the settings needed to tell the systems apart.

    Raises:
        UserError: if a system has a seed twice.
    """
    grouped: dict[frozenset[tuple[str, str]], list[ComparedRun]] = {}
    for run in runs:
        grouped.setdefault(frozenset(_settings(run.settings).items()), []).append(run)
    systems = list(grouped.values())
    check_seeds((run.path, run.settings) for run in runs)
    if len(systems) == 1:
        return Systems({str(runs[0].settings.get("name") or runs[0].path.name): systems[0]}, [])
    telling, redundant = _telling(_traits([group[0] for group in systems]), len(systems))
    telling = [trait._replace(values=shortened(trait.values)) for trait in telling]
    bare = len(telling) == 1 and isinstance(telling[0].values[0], str) and "." not in telling[0].key
    names = [" ".join(trait.word(n, bare) for trait in telling) for n in range(len(systems))]
    notes = [
        f"{trait.key} also differs: {', '.join(dict.fromkeys(map(str, trait.values)))}"
        for trait in redundant
    ]
    return Systems(dict(zip(names, systems, strict=True)), notes)


def check_seeds(runs: Iterable[tuple[Path, Mapping[str, Any]]]) -> None:
    """Raise UserError if a system has a seed twice. Args: runs: paths with their settings."""
    path_by_system: dict[tuple[object, ...], Path] = {}
    for path, settings in runs:
        system = (frozenset(_settings(settings).items()), settings.get("seed"))
        first = path_by_system.setdefault(system, path)
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
        if leaf.value is not None and leaf.key not in _ASIDE and leaf.role not in _IGNORED_ROLES
    }


def _traits(runs: Sequence[ComparedRun]) -> list[_Trait]:
    """Return settings that differ: choices of groups first, then values that no choice implies."""
    chosen: list[Mapping[str, str]] = [run.settings.get("choices") or {} for run in runs]
    keys = {key for run in chosen for key in run} - {"experiment", "generation"}
    groups = sorted(key for key in keys if role_of(key) not in _IGNORED_ROLES)
    choices = [_Trait(group, [run.get(group) for run in chosen]) for group in groups]
    settings = [_settings(run.settings) for run in runs]
    choices += [  # settings of the evaluation, which the names of runs lack
        _Trait(root, [run.get(f"{root}._target_", "").rpartition(".")[2] for run in settings])
        for root in ("generation", "scorer")
    ]
    choices = [trait for trait in choices if len(set(trait.values)) > 1]
    by_root = {trait.key.rpartition("@")[2]: trait for trait in choices}
    values = []
    for key in sorted({key for run in settings for key in run}):
        trait = _Trait(key, [run.get(key) for run in settings])
        choice = by_root.get(re.split(r"[.\[]", key)[0])
        num_choices = len(set(choice.values)) if choice else 1
        together = zip(choice.values if choice else [None] * len(runs), trait.values, strict=True)
        if len(set(together)) > num_choices:
            values.append(trait)
    return [*choices, *values]


def _telling(traits: Sequence[_Trait], count: int) -> tuple[list[_Trait], list[_Trait]]:
    """Split traits into the first ones that make all systems distinct, and the others."""
    telling: list[_Trait] = []
    redundant: list[_Trait] = []
    for trait in traits:
        distinct = len(set(zip(*(t.values for t in telling), strict=True))) if telling else 1
        more = len(set(zip(*(t.values for t in [*telling, trait]), strict=True)))
        (telling if more > distinct and distinct < count else redundant).append(trait)
    return telling, redundant
