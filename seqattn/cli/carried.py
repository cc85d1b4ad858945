"""Settings that a bundle carries over to the verbs that use it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from seqattn.cli.bundle_files import part_of, read_config
from seqattn.cli.config import compose_config, quoted, require_values
from seqattn.errors import UserError

Config = dict[str, Any]


def compose_with_bundle(
    name: str, overrides: Sequence[str], nodes: dict[str, str]
) -> tuple[DictConfig, Config]:
    """Composes the verb `name`: its defaults, then the bundle's settings, then the user's.

    Args:
        name: the verb.
        overrides: the user's.
        nodes: from a node of the verb's configuration to the bundle's node that fills it. Where
            the user chooses another member of that group, the bundle's is left out.

    Returns:
        The composed configuration and the bundle's.

    Raises:
        UserError: where there is no such bundle, or a key is wrong.
    """
    given = compose_config(name, [o for o in overrides if o.startswith("bundle=")])
    require_values_of(given, "bundle")
    bundle = read_config(Path(given.bundle).expanduser())
    carried: list[str] = []
    for node, origin in nodes.items():
        if any(override.startswith(f"{node}=") for override in overrides):
            continue
        value = part_of(bundle, origin, given.bundle)
        choice = bundle.get("choices", {}).get(origin)
        if choice is not None:
            carried.append(f"{node}={choice}")
        carried += [f"++{node}.{key}={_quoted(item)}" for key, item in value.items()]
    config = compose_config(name, [*carried, *overrides])
    require_values(config)
    return config, bundle


def require_values_of(config: DictConfig, key: str) -> None:
    """Refuses a configuration without `key`."""
    from omegaconf import OmegaConf

    if OmegaConf.is_missing(config, key):
        raise UserError(f"{key} must be given: add {key}=RUN/model")


def _quoted(value: Any) -> str:
    """A value in Hydra's grammar of overrides."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_quoted(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_quoted(item) for item in value) + "]"
    if isinstance(value, str):
        return quoted(value)
    return json.dumps(value)
