"""Preparation of a user's overrides: quoting, and adding those of a run or a bundle."""

import re
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.types import Quote, QuotedString, Sweep
from hydra.errors import HydraException

from seqattn.config import saved_overrides
from seqattn.config.saved_overrides import nodes_of, overrides_of, parsed, texts_of, value_of
from seqattn.config.subcommand import Subcommand
from seqattn.errors import UserError
from seqattn.installation import CONF
from seqattn.settings.choices import SLOT_NODES, with_new_keys
from seqattn.settings.documents import bundle_dir
from seqattn.storage import user_path

BUNDLE_PREFIX = r"bundle\d+_"
"""Prefix of the names of choices from a bundle."""


def complete(subcommand: Subcommand, overrides: Sequence[str]) -> list[str]:
    """Quote a user's overrides, and put those from `resume=RUN`, `bundle=` or `init_from=` before.

    A run adds the overrides that it was started with. A bundle adds its nodes, as choices with
    names such as `bundle0_gqa`, except in groups for which the user made a choice.

    Raises:
        UserError: if there is no such run or bundle, or no file for `input`.
    """
    name, texts = subcommand.name, subcommand.texts
    overrides = [hydra_word(word, word.partition("=")[0] in texts) for word in overrides]
    for group in {word.partition("=")[0] for word in overrides} - {""}:
        value = value_of(overrides, group) if (CONF / group).is_dir() else None
        if isinstance(value, int | float):
            names = sorted(file.stem for file in (CONF / group).glob("[!_]*.yaml"))
            raise UserError(f"{group} takes a name, such as {names[0]}, got {value}")
    source = value_of(overrides, "input") if name == "generate" else None
    if isinstance(source, str):  # here, as PyTorch takes seconds to import
        file = user_path(source)
        if file.is_dir() or not file.exists():
            raise UserError(f"input={file} is not a file")
    adds = saved_overrides.OF_MIXTURE, "data.sources="  # sources that conf/ does not have
    overrides = [f"+{word}" if word.startswith(adds) else word for word in overrides]
    if name == "evaluate":  # keys of any search are allowed
        overrides = [f"++{word}" if word.startswith("tune.") else word for word in overrides]
    a_run = name == "train" and value_of(overrides, "resume") not in ("auto", True, False)
    run = _path(overrides, "resume") if a_run else None
    if run is not None:
        saved = overrides_of(run, overrides, texts_of(overrides, "trust"))
        overrides = [*saved, f"run_dir={quoted(run)}", *overrides]
    path = value_of(overrides, "init_from") if name == "train" else _path(overrides, "bundle")
    if name == "explain" and path is None:  # uses the data of the first
        path = next(iter(texts_of(overrides, "bundles")), None)
    if not subcommand.from_bundle or not isinstance(path, str):
        return overrides
    trust = texts_of(overrides, "trust")
    if run is not None:  # it has the settings of its bundle, which may have moved
        bundle, path = nodes_of(run, subcommand.from_bundle.values(), trust), run
    else:
        from seqattn.bundle.files import read_config

        path = str(bundle_dir(path))
        bundle = read_config(Path(path), trust=trust)
    return [*_bundle_overrides(subcommand, overrides, bundle, path), *overrides]


def is_filled(override: str) -> bool:
    """Return True if `complete` added the override for a bundle's node."""
    return re.match(rf"[^=]+=\[?{BUNDLE_PREFIX}", override) is not None


def _bundle_overrides(
    subcommand: Subcommand, overrides: Sequence[str], bundle: Mapping[str, Any], path: str
) -> list[str]:
    """Return overrides that choose a bundle's nodes for groups without a user's choice."""
    from seqattn.bundle.files import part_of
    from seqattn.settings.data_paths import MISSING, with_paths

    brought, numbers = [], count()
    for group, origin in subcommand.from_bundle.items():
        absent = origin in SLOT_NODES and bundle.get(origin) is None
        if absent or isinstance(value_of(overrides, group), str | list | Sweep):
            continue
        node = part_of(bundle, origin, path)
        if group == "scorer" and isinstance(node, list):  # by number, as one choice
            node = {str(number): scorer for number, scorer in enumerate(node)}
        if group == "data":
            node = with_paths(node, user_path(path))
        if group == "data" and _needs_no_data(subcommand.name, overrides):
            node = {key: "DIR" if value == MISSING else value for key, value in node.items()}
        parts, names = node if isinstance(node, list) else [node], []
        were = str((bundle.get("choices") or {}).get(group)).strip("[]").split(",")
        for part, was in zip(parts, were if len(were) == len(parts) else ["NAME"] * len(parts)):
            if not isinstance(part, dict) or "defaults" in part:  # Hydra composes these from files
                raise UserError(f"{path}: {origin} must be a config node without defaults")
            if isinstance(part.get("processors"), list):  # by name, so that others can be added
                processors = {
                    str(number): processor for number, processor in enumerate(part["processors"])
                }
                part = {**part, "processors": processors}
            names.append(f"bundle{next(numbers)}_{was if was.isidentifier() else 'NAME'}")
            base = group.partition("@")[0]
            ConfigStore.instance().store(group=base, name=names[-1], node=with_new_keys(base, part))
        chosen = f"[{','.join(names)}]" if isinstance(node, list) else names[0]
        brought.append(f"{group}={chosen}")
    return brought


def _needs_no_data(subcommand: str, overrides: Sequence[str]) -> bool:
    if subcommand == "convert":  # it reports that it scores nothing
        return not (value_of(overrides, "prune") or value_of(overrides, "uptrain_steps"))
    return any(value_of(overrides, key) is not None for key in ("text", "source"))


def _path(overrides: Sequence[str], key: str) -> str | None:
    """Return the path given for a key; None without one, or if there are several."""
    value = value_of(overrides, key)
    if value is not None and not isinstance(value, str | Sweep):
        raise UserError(f"{key} must be text, got {value!r}")
    return value if isinstance(value, str) else None


def quoted(text: str) -> str:
    """Quote any text for Hydra's grammar of overrides."""
    literal = QuotedString(text, Quote.single).with_quotes()
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", literal)  # no interpolation


def hydra_word(override: str, is_text: bool) -> str:
    """Quote the value of an override, if Hydra's grammar cannot read it or would change it.

    Of a sentence or an expression, that is any value except null and one quoted string as a whole.
    Of another key, it is a path that begins with "~", the choice `true` of a group that has one,
    and a text with backslashes or that Hydra cannot parse. Lists, dicts, quoted texts, values with
    an interpolation and several values are left to Hydra.
    """
    key, equals, value = override.partition("=")
    if is_text:
        literal = re.fullmatch(r"(['\"])((?!\1)[^\\]|\\.)*\1", value, re.DOTALL)
        return override if value == "null" or literal else f"{key}={quoted(value)}"
    if key and re.fullmatch(r"~[^,'\"\[\]{}]*", value):
        return f"{key}={quoted(value)}"
    if value in ("true", "false") and (CONF / key / "true.yaml").is_file():
        return f"{key}='true'" if value == "true" else f"~{key}"
    if not equals or not re.fullmatch(r"[+]*[\w.@]+", key) or not value.isprintable():
        return override
    try:
        is_plain = isinstance(parsed(override).value(), str) and "\\" in value
    except HydraException:
        is_plain = "," not in value
    is_plain = is_plain and value[:1] not in "[{'\"" and "${" not in value
    return f"{key}={quoted(value)}" if is_plain else override
