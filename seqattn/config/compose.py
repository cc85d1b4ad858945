"""From what a user typed to plain settings: Hydra composes, a bundle or a run brings its own."""

import re
from collections.abc import Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any

import yaml
from hydra import compose
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString, Sweep
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from seqattn.bundle import nodes
from seqattn.bundle.choices import SLOT_NODES, with_new_keys
from seqattn.bundle.nodes import nearest
from seqattn.errors import UserError
from seqattn.places import shipped
from seqattn.runs.rendezvous import rendezvous

CONF = shipped("conf")
Settings = dict[str, Any]
"""A verb's keys with plain values, interpolations resolved."""
_SCORED = {"generation": "generation", "data": "data", "scorer": "task.scorer"}
CARRIED = {
    "train": {
        **{group: group for group in ("model", "position", "attention")},
        **{f"attention@{node}": node for node in SLOT_NODES},
    },
    "generate": {"generation": "generation"},
    "distil": {"generation": "generation", "data": "data"},
    "backtranslate": {"generation": "generation", "data": "data"},
    **dict.fromkeys(("evaluate", "explain", "convert", "report", "heads"), _SCORED),
    "probe": {"data": "data"},
}
"""For each verb, its groups that a bundle fills, and from which of the bundle's nodes."""
_OWN = r"bundle\d+_"
"""What the choices that a bundle fills begin with, before the names that they had there."""
_SENTENCES = ("text", "target", "question", "context")
_FILLING = ("search", "experiment", "processor")
"""Groups whose choices fill the keys of others."""


def unused_path() -> None:
    """Registers `${unused:PATH}`: PATH, or with a number behind it where that is taken.

    It leads nowhere for a PATH that goes up, as a run of such a name would. Ranks take one PATH.
    """

    def unused(path: str) -> str:
        if ".." in Path(path).parts:
            raise UserError(f"name must stay in the folder of runs, got {path}; give run_dir=PATH")
        candidates = chain([path], (f"{path}_{number}" for number in count(2)))
        return rendezvous.agreed(lambda: next(one for one in candidates if not Path(one).exists()))

    OmegaConf.register_new_resolver("unused", unused, use_cache=True, replace=True)


def complete(verb: str, overrides: Sequence[str]) -> list[str]:
    """A user's overrides behind those that `resume=RUN`, `bundle=` or `init_from=PATH` bring.

    A run brings the overrides that it was started with. A bundle brings its nodes, as choices of
    names such as `bundle0_gqa`, unless the user chose another member of that group.

    Raises:
        UserError: where there is no such run or bundle.
    """
    if verb in ("analyze", "generate", "explain"):
        overrides = [_as_text(override) for override in overrides]
    if verb == "evaluate":  # keys of the search, whatever it is
        overrides = [f"++{one}" if one.startswith("tune.") else one for one in overrides]
    a_run = verb == "train" and _value(overrides, "resume") not in ("auto", True, False)
    run = _path(overrides, "resume") if a_run else None
    if run is not None:
        before = [one for one in _resumed(run, overrides) if one not in overrides]
        overrides = [*before, *overrides]
    given = _value(overrides, "init_from") if verb == "train" else _path(overrides, "bundle")
    several = _value(overrides, "bundles") if verb == "explain" and given is None else None
    if isinstance(several, list) and several:  # on the data of the first
        given = str(getattr(several[0], "text", several[0]))
    if verb not in CARRIED or not isinstance(given, str):
        return list(overrides)
    if run is not None:  # which has the settings of its bundle, wherever that is now
        return [*_filled(verb, overrides, _saved(run, "config", dict), run), *overrides]
    from seqattn.bundle.files import read_config

    trust = _value(overrides, "trust")
    trusted = trust if isinstance(trust, list) else ()
    bundle = read_config(Path(given).expanduser(), trust=trusted)
    return [*_filled(verb, overrides, bundle, given), *overrides]


def is_filled(override: str) -> bool:
    """Whether `complete` added an override for a bundle's node."""
    return re.match(rf"[^=]+=\[?{_OWN}", override) is not None


def _filled(verb: str, overrides: Sequence[str], bundle: Mapping[str, Any], path: str) -> list[str]:
    """Overrides that choose a bundle's nodes for the groups of which the user chose no member."""
    from seqattn.bundle.data_paths import MISSING, with_paths
    from seqattn.bundle.files import part_of

    brought, numbers = [], count()
    for group, origin in CARRIED[verb].items():
        absent = origin in SLOT_NODES and bundle.get(origin) is None
        if absent or isinstance(_value(overrides, group), str | list | Sweep):
            continue
        node = part_of(bundle, origin, path)
        if group == "data":
            node = with_paths(node, Path(path).expanduser())
        if group == "data" and (verb == "convert" or _value(overrides, "text") is not None):
            # which needs no data
            node = {key: "DIR" if value == MISSING else value for key, value in node.items()}
        was = str((bundle.get("choices") or {}).get(group))
        names = []
        for part in node if isinstance(node, list) else [node]:
            if isinstance(part.get("processors"), list):  # by names, to put others beside them
                listed = {str(number): one for number, one in enumerate(part["processors"])}
                part = {**part, "processors": listed}
            names.append(f"bundle{next(numbers)}_{was if was.isidentifier() else 'NAME'}")
            home = group.partition("@")[0]
            ConfigStore.instance().store(group=home, name=names[-1], node=with_new_keys(home, part))
        chosen = f"[{','.join(names)}]" if isinstance(node, list) else names[0]
        brought.append(f"{group}={chosen}")
    return brought


def settle(verb: str, config: DictConfig, **own: str) -> Settings:
    """The settings of a job, as Hydra composed it.

    `attention=[a,b]` (or a slot's own) becomes a list of both, each with the same other overrides.

    Args:
        verb: the name of its configuration.
        config: what Hydra composed.
        **own: values that the verb knows better, before others that name them are resolved.

    Raises:
        UserError: for a value that must be given, an interpolation that leads nowhere, or a key
            that the verb does not know.
    """
    overrides = list(HydraConfig.get().overrides.task)
    whole = complete(verb, overrides) if verb in CARRIED else overrides
    if whole != overrides:  # a job of a multirun over bundles
        config = compose(HydraConfig.get().job.config_name, whole)
    with open_dict(config):
        config.update(own)
    settings = _plain(config)
    mixed = {key: names for key, names in map(_mixture, whole) if names}
    for key, names in mixed.items():
        others = [override for override in whole if _mixture(override)[0] not in mixed]
        others += [f"{other}={chosen[0]}" for other, chosen in mixed.items() if other != key]
        layers = (compose(verb, [*others, f"{key}={name}"]) for name in names)
        slot = key.partition("@")[2] or key
        settings[slot] = [_plain(layer)[slot] for layer in layers]
    _check_keys(verb, settings)
    return settings


def choices() -> dict[str, str]:
    """The choice of each group that has one, of the job that Hydra runs."""
    chosen = HydraConfig.get().runtime.choices
    return {
        str(group): re.sub(_OWN, "", str(name))
        for group, name in chosen.items()
        if name is not None and not str(group).startswith("hydra/")
    }


def as_values(overrides: Sequence[str]) -> dict[str, Any]:
    """Overrides as plain values by their keys."""

    def plain(value: Any) -> Any:
        return getattr(value, "text", nodes.each(lambda part, _: plain(part), value, ""))

    parse = OverridesParser.create().parse_override
    return {one.partition("=")[0]: plain(parse(one).value()) for one in overrides}


def _check_keys(verb: str, settings: Settings) -> None:
    """Refuses keys that are not there or were taken away, before anything heavy is imported."""
    needed, optional = _keys_of(verb)
    for key in settings:
        if key not in (*needed, *optional):
            raise UserError(f"there is no key {key}{nearest(key, [*needed, *optional])}")
    for key in needed:
        if key not in settings:
            raise UserError(f"{key} must be given; leave ~{key} out")


def _keys_of(verb: str) -> tuple[list[str], list[str]]:
    """Keys that a verb needs, and those that may be absent: empty slots, and lists of choices."""
    document = yaml.safe_load((CONF / f"{verb}.yaml").read_text(encoding="utf-8"))
    needed = [key for key in document if key not in ("defaults", "hydra")]
    optional: list[str] = []
    for entry in document["defaults"]:
        if isinstance(entry, str) and entry != "_self_":  # another verb, whose keys it takes
            theirs = _keys_of(entry)
            needed, optional = [*needed, *theirs[0]], [*optional, *theirs[1]]
        for group, choice in entry.items() if isinstance(entry, dict) else ():
            if not group.startswith("override ") and group not in _FILLING:
                keys = needed if isinstance(choice, str) else optional
                keys.append(group.rpartition("@")[2])
    return needed, optional


def _plain(config: DictConfig) -> Settings:
    """A configuration as plain dicts and lists, interpolations resolved."""
    try:
        missing = sorted(OmegaConf.missing_keys(config))
        container = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        raise UserError(str(error)) from error
    if missing:
        example = " ".join(f"{key}={'RUN/model' if key == 'bundle' else '...'}" for key in missing)
        raise UserError(f"{', '.join(missing)} must be given: add {example}")
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


def _mixture(override: str) -> tuple[str, list[str]]:
    found = re.fullmatch(r"(attention(?:@(?:encoder|decoder|cross)_attention)?)=\[(.*)\]", override)
    if found is None:
        return override, []
    return found[1], [name.strip() for name in found[2].split(",")]


def _resumed(run: str, overrides: Sequence[str]) -> list[str]:
    """The overrides that a run was started with, but for those that are given anew."""
    before = _saved(run, "overrides", list)
    replaced = {"run_dir", *(override.partition("=")[0] for override in overrides)}
    kept = [one for one in before if one.partition("=")[0] not in replaced]
    return [*kept, f"run_dir={_quoted(run)}"]


def _saved(run: str, name: str, kind: type[list[Any]] | type[dict[str, Any]]) -> Any:
    """A list or dict of texts that a run has written down."""
    saved = Path(run).expanduser() / f"{name}.yaml"
    if not saved.is_file():
        raise UserError(f"resume={run} is no run: {saved} is not there")
    try:
        found = yaml.safe_load(saved.read_text(encoding="utf-8"))
    except (ValueError, yaml.YAMLError, RecursionError):  # ValueError of a date, too
        found = None
    if not isinstance(found, kind) or not all(isinstance(one, str) for one in found):
        raise UserError(f"{saved} cannot be read; start a run anew")
    return found


def _value(overrides: Sequence[str], key: str) -> Any:
    """The value that a user gave a key last; None where there is none."""
    given = [override for override in overrides if override.partition("=")[0] == key]
    return OverridesParser.create().parse_override(given[-1]).value() if given else None


def _path(overrides: Sequence[str], key: str) -> str | None:
    """The path that a key is given; None where there is none yet, or several."""
    given = _value(overrides, key)
    if given is not None and not isinstance(given, str | Sweep):
        raise UserError(f"{key} must be text, got {given!r}")
    return given if isinstance(given, str) else None


def _quoted(text: str) -> str:
    """A text in Hydra's grammar of overrides, whatever characters it holds."""
    quoted = QuotedString(text, Quote.single).with_quotes()
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", quoted)  # no interpolation


def _as_text(override: str) -> str:
    """Quotes a sentence, so that its commas and colons are no grammar of Hydra's."""
    key, _, value = override.partition("=")
    as_it_is = value == "null" or (len(value) > 1 and value[0] == value[-1] and value[0] in "'\"")
    return override if key not in _SENTENCES or as_it_is else f"{key}={_quoted(value)}"
