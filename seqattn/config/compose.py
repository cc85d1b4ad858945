"""From what a user typed to plain settings, by way of Hydra."""

import re
from pathlib import Path
from typing import Any

from hydra import compose
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from seqattn.bundle.nodes import TARGET, nearest
from seqattn.config.overrides import OWN, complete, is_filled
from seqattn.config.verb_files import FROM_BUNDLE, bases, document, from_bundle, own_keys
from seqattn.errors import UserError
from seqattn.storage import file_faults, user_path
from seqattn.training.rendezvous import rendezvous

Settings = dict[str, Any]
"""A verb's keys with plain values, interpolations resolved."""
_TRIES = 10_000  # names of a run's directory, before it is given up
_FILLING = ("experiment", "processor")
"""Groups whose choices fill the keys of others."""


def register_resolvers() -> dict[str, str]:
    """Registers `${user_path:PATH}` and `${unused:PATH}`.

    The first knows "~" as the home folder. The second is a directory that it makes: PATH, or with a
    number behind it where that is taken; it leads nowhere for a PATH that goes up, as a run of such
    a name would. Ranks, and processes that a launcher starts, take one PATH.

    Returns:
        The directories that were made, by their PATHs.
    """
    made: dict[str, str] = {}

    def unused(path: str) -> str:
        if ".." in Path(path).parts:
            raise UserError(f"name must stay in the folder of runs, got {path}; give run_dir=PATH")
        if path not in made:
            made[path] = rendezvous.agreed(lambda: _made(path))
        return made[path]

    OmegaConf.register_new_resolver("unused", unused, use_cache=True, replace=True)
    OmegaConf.register_new_resolver("user_path", lambda path: str(user_path(path)), replace=True)
    return made


def _made(path: str) -> str:
    """Make a directory of this name, or with the first free number behind it.

    Raises:
        UserError: none can be made, as below a link that leads nowhere.
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
            except FileNotFoundError:  # another process has removed the folder above, as empty
                continue
    raise UserError(f"cannot make a directory such as {path}; give run_dir=PATH")


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
    several = HydraConfig.get().mode is RunMode.MULTIRUN
    whole = complete(verb, overrides) if several and from_bundle(verb) else overrides
    if whole != overrides:  # a job of a multirun over bundles
        config = compose(HydraConfig.get().job.config_name, whole)
    with open_dict(config):
        config.update(own)
    settings = plain(config)
    settings.pop(FROM_BUNDLE, None)
    mixed = {key: names for key, names in map(_mixture, whole) if names}
    for key, names in mixed.items():
        others = [override for override in whole if _mixture(override)[0] not in mixed]
        others += [f"{other}={chosen[0]}" for other, chosen in mixed.items() if other != key]
        layers = (compose(verb, [*others, f"{key}={name}"]) for name in names)
        slot = key.partition("@")[2] or key
        settings[slot] = [plain(layer)[slot] for layer in layers]
    _check_keys(verb, settings)
    return settings


def settings_of_training(config: DictConfig, **own: str) -> Settings:
    """Return the settings of a training, with its choices and the overrides to resume it by.

    Args and Raises: as `settle`.
    """
    settings = settle("train", config, **own)
    typed = [word for word in HydraConfig.get().overrides.task if not is_filled(word)]
    kept = [word for word in typed if word.partition("=")[0] not in ("resume", "run_dir")]
    return {**settings, "choices": choices(), "overrides": kept}


def choices() -> dict[str, str]:
    """The choice of each group that has one, of the job that Hydra runs."""
    chosen = HydraConfig.get().runtime.choices
    return {
        str(group): re.sub(OWN, "", str(name))
        for group, name in chosen.items()
        if name is not None and not str(group).startswith("hydra/")
    }


def _check_keys(verb: str, settings: Settings) -> None:
    """Refuses keys that are not there or were taken away, before anything heavy is imported."""
    needed, optional = _keys_of(verb)
    for key in settings:
        if key not in (*needed, *optional, TARGET):
            raise UserError(f"there is no key {key}{nearest(key, [*needed, *optional])}")
    for key in needed:
        if key not in settings:
            raise UserError(f"{key} must be given; leave ~{key} out")


def _keys_of(verb: str) -> tuple[list[str], list[str]]:
    """Keys that a verb needs, and those that may be absent: empty slots, and lists of choices."""
    needed, optional = own_keys(verb), list[str]()
    for base in bases(verb):
        theirs = _keys_of(base)
        needed, optional = [*needed, *theirs[0]], [*optional, *theirs[1]]
    for entry in document(verb)["defaults"]:
        for group, choice in entry.items() if isinstance(entry, dict) else ():
            if not group.startswith("override ") and group not in _FILLING:
                keys = needed if isinstance(choice, str) else optional
                keys.append(group.rpartition("@")[2])
    return needed, optional


def plain(config: DictConfig) -> Settings:
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
