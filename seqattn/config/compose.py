"""From what a user typed to plain settings: Hydra composes, a bundle or a run brings its own."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra import compose
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from seqattn.errors import UserError
from seqattn.places import shipped
from seqattn.runs.run_directory import world_size

CONF = shipped("conf")
SLOTS = ("attention", "encoder_attention", "decoder_attention", "cross_attention")
Settings = dict[str, Any]
"""A verb's keys with plain values, interpolations resolved."""
CARRIED = {
    "generate": {"generation": "generation"},
    "evaluate": {"generation": "generation", "data": "data", "scorer": "task.scorer"},
    "convert": {"generation": "generation", "data": "data", "scorer": "task.scorer"},
}
"""For each verb, its groups that a bundle fills, and from which of the bundle's nodes."""
_SENTENCES = ("text", "target", "question", "context")


def unused_path() -> None:
    """Registers `${unused:PATH}`: PATH, or with a number behind it where that is taken."""

    def unused(path: str) -> str:
        number, candidate = 1, Path(path)
        while candidate.exists():
            number += 1
            candidate = Path(f"{path}_{number}")
        return str(candidate)

    OmegaConf.register_new_resolver("unused", unused, use_cache=True, replace=True)


def complete(verb: str, overrides: Sequence[str]) -> list[str]:
    """A user's overrides behind those that `resume=RUN` or `bundle=PATH` bring.

    A run brings the overrides that it was started with. A bundle brings its nodes, as choices of
    the name `bundle`, unless the user chose another member of that group.

    Raises:
        UserError: where there is no such run or bundle.
    """
    if verb == "train":
        return _resumed(list(overrides))
    if verb == "analyze":
        return [_as_text(override) for override in overrides]
    nodes, path = CARRIED.get(verb, {}), _path(overrides, "bundle")
    if path is None or not nodes:
        return list(overrides)
    from seqattn.bundle.files import part_of, read_config

    bundle = read_config(Path(path).expanduser(), trust=_value(overrides, "trust") or ())
    brought = []
    for group, origin in nodes.items():
        chosen = isinstance(_value(overrides, group), str | list)
        if not chosen and not _swept(overrides, group):
            node = part_of(bundle, origin, path)
            ConfigStore.instance().store(group=group, name="bundle", node=_literal(node))
            brought.append(f"{group}=bundle")
    return [*brought, *overrides]


def settle(verb: str, config: DictConfig, **own: str) -> Settings:
    """The settings of a job, as Hydra composed it.

    `attention=[a,b]` (or a slot's own) becomes a list of both, each with the same other overrides.

    Args:
        verb: the name of its configuration.
        config: what Hydra composed.
        **own: values that the verb knows better, before others that name them are resolved.

    Raises:
        UserError: for a value that must be given, or an interpolation that leads nowhere.
    """
    overrides = list(HydraConfig.get().overrides.task)
    whole = complete(verb, overrides) if verb in CARRIED else overrides
    if whole != overrides:  # a job of a multirun over bundles
        config = compose(HydraConfig.get().job.config_name, whole)
    with open_dict(config):
        config.update(own)
    settings = plain(config)
    mixed = {key: names for key, names in map(_mixture, whole) if names}
    for key, names in mixed.items():
        others = [override for override in whole if _mixture(override)[0] not in mixed]
        others += [f"{other}={chosen[0]}" for other, chosen in mixed.items() if other != key]
        layers = (compose(verb, [*others, f"{key}={name}"]) for name in names)
        slot = key.partition("@")[2] or key
        settings[slot] = [plain(layer)[slot] for layer in layers]
    return settings


def choices() -> dict[str, str]:
    """The choice of each group that has one, of the job that Hydra runs."""
    chosen = HydraConfig.get().runtime.choices
    return {
        str(group): str(name)
        for group, name in chosen.items()
        if name is not None and not str(group).startswith("hydra/")
    }


def choices_of(group: str, names: Sequence[str] | None = None) -> Settings:
    """Nodes of a group's choices in conf, by name. Args: names: which of them; None for all.

    Raises:
        UserError: for a name that is not there.
    """
    known = sorted(file.stem for file in (CONF / group).glob("[!_]*.yaml"))
    if not isinstance(names, list | None):
        raise UserError(f"{group} names must be a list such as [{known[0]}], got {names!r}")
    for name in names or ():
        if name not in known:
            raise UserError(f"there is no {group}={name}; the choices are: {', '.join(known)}")
    files = {name: CONF / group / f"{name}.yaml" for name in names or known}
    return {
        name: OmegaConf.to_container(OmegaConf.load(file), resolve=True)
        for name, file in files.items()
    }


def typed() -> list[str]:
    """The overrides of the job that Hydra runs, those that name its own directory left out."""
    own = ("resume", "run_dir")
    return [one for one in HydraConfig.get().overrides.task if one.partition("=")[0] not in own]


def run_directory() -> Path:
    """The directory of the job that Hydra runs, from here where it is below.

    Raises:
        UserError: where several processes train together and would each choose their own.
    """
    given = any(one.startswith("run_dir=") for one in HydraConfig.get().overrides.task)
    if world_size() > 1 and not given:
        raise UserError("several processes that train together must share run_dir=PATH: give it")
    path = Path(HydraConfig.get().runtime.output_dir)
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def plain(config: DictConfig) -> Settings:
    """A configuration as plain dicts and lists, interpolations resolved.

    Raises:
        UserError: naming the keys whose values must be given, or an interpolation that leads
            nowhere.
    """
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


def _resumed(overrides: list[str]) -> list[str]:
    run = _path(overrides, "resume")
    if run is None:
        return overrides
    saved = Path(run).expanduser() / "overrides.yaml"
    if not saved.is_file():
        raise UserError(f"resume={run} is no run: {saved} is not there")
    try:
        before = yaml.safe_load(saved.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        before = None
    if not isinstance(before, list) or not all(isinstance(one, str) for one in before):
        raise UserError(f"{saved} cannot be read; start a run anew")
    replaced = {"run_dir", *(override.partition("=")[0] for override in overrides)}
    kept = [one for one in before if one.partition("=")[0] not in replaced]
    return [*kept, f"run_dir={_quoted(run)}", *overrides]


def _parsed(overrides: Sequence[str], key: str) -> Any:
    """The user's last override of a key; None where there is none."""
    for override in reversed(overrides):
        if override.partition("=")[0] == key:
            return OverridesParser.create().parse_override(override)
    return None


def _value(overrides: Sequence[str], key: str) -> Any:
    found = _parsed(overrides, key)
    return None if found is None or found.is_sweep_override() else found.value()


def _path(overrides: Sequence[str], key: str) -> str | None:
    found = _value(overrides, key)
    if found is not None and not isinstance(found, str):
        raise UserError(f"{key} must be text, got {found!r}")
    return found


def _swept(overrides: Sequence[str], key: str) -> bool:
    found = _parsed(overrides, key)
    return found is not None and found.is_sweep_override()


def _literal(value: Any) -> Any:
    """Plain values of which none is an interpolation."""
    if isinstance(value, Mapping):
        return {key: _literal(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_literal(part) for part in value]
    return _escaped(value) if isinstance(value, str) else value


def _escaped(text: str) -> str:
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", text)


def _quoted(text: str) -> str:
    """A text in Hydra's grammar of overrides, whatever characters it holds."""
    # a backslash is itself, unless it stands before a quotation mark
    escaped = re.sub(r"(\\*)('|$)", lambda m: 2 * m[1] + ("\\'" if m[2] else ""), text)
    return "'" + _escaped(escaped) + "'"


def _as_text(override: str) -> str:
    """Quotes a sentence, so that its commas and colons are no grammar of Hydra's."""
    key, _, value = override.partition("=")
    as_it_is = value == "null" or (len(value) > 1 and value[0] == value[-1] and value[0] in "'\"")
    return override if key not in _SENTENCES or as_it_is else f"{key}={_quoted(value)}"
