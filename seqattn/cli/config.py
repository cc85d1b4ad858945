"""Composes configurations, and answers typos with the nearest right name."""

import difflib
import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from seqattn.errors import UserError
from seqattn.places import shipped

CONF = shipped("conf")
SLOTS = ("attention", "encoder_attention", "decoder_attention", "cross_attention")


def compose_config(name: str, overrides: Sequence[str]) -> DictConfig:
    """The configuration `name` with the user's overrides.

    `attention=[a,b]` (or a slot's own) becomes a list of both, each with the same other overrides.

    Raises:
        UserError: for a misspelt group, choice or key, with the nearest right one.
    """
    mixed = {key: names for key, names in map(_mixture, overrides) if names}
    plain = [override for override in overrides if not _mixture(override)[1]]
    first = [f"{key}={names[0]}" for key, names in mixed.items()]
    config = _compose(name, [*plain, *first])
    OmegaConf.set_struct(config, False)
    for key, names in mixed.items():
        others = [choice for choice in first if not choice.startswith(f"{key}=")]
        slot = key.partition("@")[2] or key
        layers = [_compose(name, [*plain, *others, f"{key}={choice}"])[slot] for choice in names]
        config[slot] = ListConfig([OmegaConf.to_container(layer, resolve=True) for layer in layers])
    return config


def _mixture(override: str) -> tuple[str, list[str]]:
    found = re.fullmatch(r"(attention(?:@(?:encoder|decoder|cross)_attention)?)=\[(.*)\]", override)
    if found is None:
        return override, []
    return found[1], [name.strip() for name in found[2].split(",")]


def _compose(name: str, overrides: Sequence[str]) -> DictConfig:
    with initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
        try:
            whole = compose(name, overrides=list(overrides), return_hydra_config=True)
            chosen = OmegaConf.to_container(whole.hydra.runtime.choices)
            assert isinstance(chosen, dict)
            with open_dict(whole):
                del whole["hydra"]
                whole.choices = {k: v for k, v in chosen.items() if not str(k).startswith("hydra")}
            return whole
        except MissingConfigException as error:
            raise UserError(_unknown_choice(error)) from error
        except OverrideParseException as error:
            raise UserError(
                f"cannot read the argument {error.override!r}: write name=value, quoted where the "
                "value holds spaces or commas"
            ) from error
        except (HydraException, OmegaConfBaseException) as error:
            raise UserError(_unknown_key(name, overrides, error)) from error
        except ValueError as error:  # Hydra's answer to logger=null
            raise UserError(f"{error}; write logger=[] for none") from error


def _unknown_choice(error: MissingConfigException) -> str:
    group, _, wrong = (error.missing_cfg_file or "").rpartition("/")
    options = [o for o in error.options or groups().get(group, []) if not o.startswith("_")]
    choices = ", ".join(sorted(options))
    if not group:
        return f"there is no configuration {wrong}"
    return f"there is no {group}={wrong}{_nearest(wrong, options)}; the choices are: {choices}"


def _unknown_key(name: str, overrides: Sequence[str], error: Exception) -> str:
    """Says which override names a key that is not there."""
    for number, override in enumerate(overrides):
        key = override.lstrip("+~").partition("=")[0]
        try:
            compose(name, overrides=[*overrides[:number], *overrides[number + 1 :]])
        except (HydraException, OmegaConfBaseException):
            continue
        rest = [other for other in overrides if other is not override]
        values: Any = OmegaConf.to_container(compose(name, overrides=rest))
        known = [*_keys(values), *groups(), *(f"attention@{slot}" for slot in SLOTS[1:])]
        if key in known:
            break
        return f"there is no key {key}{_nearest(key, known)}"
    return " ".join(str(error).split())


def _nearest(wrong: str, options: Iterable[str]) -> str:
    options = list(options)
    found = difflib.get_close_matches(wrong, options, n=1, cutoff=0.5)
    if not found:  # the right key in the wrong place
        last = wrong.rpartition(".")[2]
        endings = {option.rpartition(".")[2]: option for option in options}
        found = [endings[end] for end in difflib.get_close_matches(last, endings, n=1, cutoff=0.7)]
    return f"; did you mean {found[0]}?" if found else ""


def _keys(values: dict[str, Any], prefix: str = "") -> list[str]:
    """Every key of a configuration, with dots."""
    keys: list[str] = []
    for key, value in values.items():
        if key.startswith("_"):
            continue
        keys.append(f"{prefix}{key}")
        if isinstance(value, dict):
            keys += _keys(value, f"{prefix}{key}.")
    return keys


def groups() -> dict[str, list[str]]:
    """Every group and its choices."""
    folders = sorted(folder for folder in CONF.iterdir() if folder.is_dir())
    return {
        folder.name: sorted(f.stem for f in folder.glob("*.yaml") if not f.stem.startswith("_"))
        for folder in folders
    }


def require_values(config: DictConfig) -> None:
    """Refuses a configuration in which a value that must be given is missing.

    Raises:
        UserError: naming the keys, or an interpolation that leads nowhere.
    """
    try:
        missing = sorted(OmegaConf.missing_keys(config))
    except OmegaConfBaseException as error:
        raise UserError(" ".join(str(error).split())) from error
    if missing:
        examples = " ".join(f"{key}=..." for key in missing)
        raise UserError(f"{', '.join(missing)} must be given: add {examples}")


def plain(config: DictConfig) -> dict[str, Any]:
    """The configuration as plain dicts and lists, interpolations resolved.

    Raises:
        UserError: where an interpolation leads nowhere.
    """
    try:
        container = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        raise UserError(" ".join(str(error).split())) from error
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


def quoted(value: str) -> str:
    """A text in Hydra's grammar of overrides, whatever characters it holds."""
    # a backslash is itself, unless it stands before a quotation mark
    escaped = re.sub(r"(\\*)('|$)", lambda m: 2 * m[1] + ("\\'" if m[2] else ""), value)
    return "'" + re.sub(r"(\\*)\$\{", r"\1\1\\${", escaped) + "'"


def sweep(overrides: Sequence[str]) -> list[list[str]]:
    """The jobs of a multirun: every combination of the overrides' comma-separated values.

    Raises:
        UserError: where an override cannot be read.
    """
    options: list[list[str]] = []
    for override in overrides:
        try:
            parsed = OverridesParser.create().parse_override(override)
        except HydraException as error:
            raise UserError(f"cannot read the argument {override!r}: write name=value") from error
        if parsed.is_sweep_override():
            key = parsed.get_key_element()
            options.append([f"{key}={value}" for value in parsed.sweep_string_iterator()])
        else:
            options.append([override])
    return [list(job) for job in itertools.product(*options)]
