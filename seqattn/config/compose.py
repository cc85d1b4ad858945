"""Plain settings from overrides, composed by Hydra."""

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from seqattn.checking import parameters
from seqattn.config.overrides import BUNDLE_PREFIX, complete, is_filled
from seqattn.config.subcommand import FROM_BUNDLE, TEXT, Subcommand
from seqattn.errors import UserError
from seqattn.settings.choices import SLOT_NODES, check_fit
from seqattn.settings.choices import choices as shipped
from seqattn.settings.documents import bundle_dir
from seqattn.settings.nodes import TARGET, import_path, missing_extra, nearest
from seqattn.storage import file_faults, user_path
from seqattn.training.rank_messages import rank_messages
from seqattn.training.run_directory import KEPT, existing

Settings = dict[str, Any]
"""Plain values of a subcommand's keys, interpolations resolved."""
_TRIES = 10_000  # attempts to name a run's directory
_NAMED_GROUPS = ("logger", "callbacks")
"""Groups of several choices, each with its node by name."""
_BUNDLES = ("bundle", "bundles", "ensemble", "init_from", "vocabulary")
"""Keys with paths of bundles."""


def register_resolvers() -> dict[str, str]:
    """Register `${user_path:PATH}` and `${unused:PATH}`.

    The first expands "~", and notes what is there before Hydra creates a directory. The second
    creates a directory: PATH, or PATH with a number if that exists; a PATH with ".." is an error.
    All ranks, and processes of a launcher, get the same one.

    Returns:
        The created directories by their PATHs.
    """
    created: dict[str, str] = {}
    paths: set[str] = set()
    KEPT.clear()

    def expand(path: str) -> str:
        if path not in paths.union(created.values()):
            with suppress(OSError, UserError):  # an impossible name, which is refused later
                KEPT.add(existing(user_path(path)))
        paths.add(path)
        return str(user_path(path))

    def unused(path: str) -> str:
        if ".." in Path(path).parts:
            raise UserError(
                f"name must not point outside the directory of runs, got {path}; set run_dir=PATH"
            )
        if path not in created:
            created[path] = rank_messages.from_first(lambda: _make_unused(path))
        return created[path]

    OmegaConf.register_new_resolver("unused", unused, use_cache=True, replace=True)
    OmegaConf.register_new_resolver("user_path", expand, replace=True)
    return created


def _make_unused(path: str) -> str:
    """Create a directory of this name, or with the first unused number.

    Raises:
        UserError: if none can be created, for example below a broken link.
    """
    name, number = path, 1
    with file_faults("make", Path(path)):
        for _ in range(_TRIES):
            try:
                Path(name).mkdir(parents=True)
                return name
            except FileExistsError:
                number += 1
                name = f"{path}_{number}"
            except FileNotFoundError:  # another process has removed the empty parent folder
                continue
    raise UserError(f"cannot create a directory such as {path}; set run_dir=PATH")


def resolve_settings(subcommand: Subcommand, config: DictConfig, **values: str) -> Settings:
    """Return the settings of a job composed by Hydra.

    `attention=[a,b]` (or for a slot) becomes a list of both, each with the same other overrides, of
    which a member takes those of keys that it has.

    Args:
        subcommand: what its YAML says.
        config: composed by Hydra.
        **values: values that override the config's, before interpolations are resolved.

    Raises:
        UserError: for a missing value, an invalid interpolation, or an unknown key.
    """
    overrides = list(HydraConfig.get().overrides.task)
    is_multirun = HydraConfig.get().mode is RunMode.MULTIRUN
    completed = (
        complete(subcommand, overrides) if is_multirun and subcommand.from_bundle else overrides
    )
    if completed != overrides:  # a job of a multirun over bundles
        config = compose(HydraConfig.get().job.config_name, completed)
    with open_dict(config):
        config.update(values)
    if subcommand.name == "train":
        with suppress(OmegaConfBaseException):  # which `plain` reports
            _check_choices(config)  # rather than asking for keys of data that the task cannot use
    settings = plain(config)
    for key in (FROM_BUNDLE, TEXT):
        settings.pop(key, None)
    chosen = _attentions(completed) if "attention" in config else {}
    mixed = {key: names for key, names in chosen.items() if len(names) > 1}
    name = HydraConfig.get().job.config_name
    slots = {key: key.partition("@")[2] or key for key in mixed}
    shared = [word for word in completed if word.partition("=")[0] not in mixed]
    slot_words = {
        slot: [word for word in shared if _keys_below(slot, word)] for slot in slots.values()
    }
    shared = [word for word in shared if not any(word in words for words in slot_words.values())]
    for key, names in mixed.items():
        slot = slots[key]
        common = [*shared, *(f"{group}={mixed[group][0]}" for group in mixed if group != key)]
        members = [plain(compose(name, [*common, f"{key}={choice}"]))[slot] for choice in names]
        settings[slot] = []
        for choice, member in zip(names, members, strict=True):
            words = [
                word
                for word in slot_words[slot]
                if _has(member, keys := _keys_below(slot, word))
                or not any(_has(other, keys) for other in members)
            ]
            settings[slot].append(plain(compose(name, [*common, *words, f"{key}={choice}"]))[slot])
    _check_keys(subcommand, settings)
    _drop_missing(subcommand, settings, overrides)
    for node in (settings, settings.get("rerank") or {}):
        node |= {key: _bundle(node[key]) for key in _BUNDLES if node.get(key)}
    scorer = settings.get("scorer")
    if isinstance(scorer, dict) and TARGET not in scorer:  # several of a bundle, by number
        settings["scorer"] = [*scorer.values()]
    for group in _NAMED_GROUPS:  # keys of an experiment for a choice that the command has replaced
        nodes = (settings.get(group) or {}).items()
        replaced = [name for name, node in nodes if isinstance(node, dict) and TARGET not in node]
        for name in shipped(group).keys() & set(replaced):
            del settings[group][name]
    _drop_filled(settings.get("tokenizer"), overrides)
    return settings


def _drop_filled(tokenizer: Any, overrides: Sequence[str]) -> None:
    """Remove keys of vocabularies to train, which a recipe fills in, if none is trained."""
    if not isinstance(tokenizer, dict) or TARGET not in tokenizer:
        return
    accepted = parameters(import_path(tokenizer[TARGET], "tokenizer"))
    for name in tokenizer.keys() - accepted.keys() - {TARGET}:
        if not any(word.lstrip("+").startswith(f"tokenizer.{name}=") for word in overrides):
            del tokenizer[name]


def _drop_missing(subcommand: Subcommand, settings: Settings, overrides: Sequence[str]) -> None:
    """Remove optional groups whose extra is not installed, unless the user chose it."""
    for group in subcommand.optional:
        node, chosen = settings.get(group), any(one.startswith(f"{group}=") for one in overrides)
        if isinstance(node, dict) and not chosen:
            partial = group == "watch" and TARGET not in node  # keys of it in an experiment
            if partial or missing_extra(str(node.get(TARGET) or "")):
                del settings[group]


def _check_choices(config: DictConfig) -> None:
    """Raise UserError for choices that do not fit the task."""
    types = {
        group: import_path(str(config[group][TARGET]), group)
        for group in ("task", "data", "model", "loader", "generation")
        if isinstance(config.get(group), DictConfig) and TARGET in config[group]
    }
    if "task" in types:
        check_fit(types.pop("task"), types, choices())


def _bundle(value: Any) -> Any:
    """Return the bundle of each path, which may be that of its run."""
    if isinstance(value, list):
        return [_bundle(path) for path in value]
    return str(bundle_dir(value)) if isinstance(value, str) else value


def settings_of_training(subcommand: Subcommand, config: DictConfig, **values: str) -> Settings:
    """Return the settings of a training run, with its choices and the overrides to resume it.

    Args and Raises: as `resolve_settings`.
    """
    settings = resolve_settings(subcommand, config, **values)
    words = [word for word in HydraConfig.get().overrides.task if not is_filled(word)]
    overrides = [word for word in words if word.partition("=")[0] not in ("resume", "run_dir")]
    return {**settings, "choices": choices(), "overrides": overrides}


def choices() -> dict[str, str]:
    """Return the choices of Hydra's current job by group, without the recipe that follows."""
    chosen = dict(HydraConfig.get().runtime.choices)
    for group, names in _attentions(HydraConfig.get().overrides.task).items():
        chosen[group] = f"[{','.join(names)}]" if len(names) > 1 else names[0]
    return {
        str(group): re.sub(BUNDLE_PREFIX, "", str(name))
        for group, name in chosen.items()
        if name is not None and not str(group).startswith("hydra/") and group != "recipe"
    }


def _check_keys(subcommand: Subcommand, settings: Settings) -> None:
    """Raise UserError for unknown or removed keys, before any slow import."""
    keys = (*subcommand.needed, *subcommand.optional)
    for key in settings:
        if key not in (*keys, TARGET):
            raise UserError(f"unknown key {key}{nearest(key, keys)}")
    for key in subcommand.needed:
        if key not in settings:
            raise UserError(f"missing required key {key}; remove ~{key} or {key}=[]")


def plain(config: DictConfig) -> Settings:
    """Convert a configuration to plain dicts and lists, interpolations resolved."""
    try:
        missing = sorted(OmegaConf.missing_keys(config))
        container = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        raise UserError(str(error)) from error
    if missing:
        example = " ".join(f"{key}={'RUN/model' if key == 'bundle' else '...'}" for key in missing)
        noun = "key" if len(missing) == 1 else "keys"
        raise UserError(f"missing required {noun}: {', '.join(missing)} (add {example})")
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


def _keys_below(slot: str, override: str) -> list[str]:
    """Return the keys below a slot that an override sets or removes; none of another override."""
    first, *keys = override.partition("=")[0].lstrip("+~").split(".")
    return keys if first == slot else []


def _has(node: Any, keys: Sequence[str]) -> bool:
    for key in keys:
        if not isinstance(node, dict) or key not in node:
            return False
        node = node[key]
    return True


def _attentions(overrides: Sequence[str]) -> dict[str, list[str]]:
    """Return the names of the attentions in each group, where Hydra does not note a single one."""
    hydra, names = HydraConfig.get(), dict[str, list[str]]()
    groups = {"attention", *(f"attention@{slot}" for slot in SLOT_NODES)}
    lists = [word for word in overrides if re.match(r"attention(@\w+)?=\[", word)]
    if not lists and groups <= hydra.runtime.choices.keys():
        return {}
    loader, words = GlobalHydra.instance().config_loader(), list(overrides)
    for entry in loader.compute_defaults_list(hydra.job.config_name, words, RunMode.RUN).defaults:
        group, _, name = (entry.config_path or "").rpartition("/")
        if group == "attention" and not (entry.parent or "").startswith("attention/"):
            key = f"attention@{entry.package}".removesuffix("@attention")
            names.setdefault(key, []).append(name)
    return names
