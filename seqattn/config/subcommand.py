"""Facts about a subcommand, read from its YAML file."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from seqattn.errors import UserError
from seqattn.inputs import read_yaml
from seqattn.installation import CONF
from seqattn.settings.nodes import TARGET

FROM_BUNDLE = "_from_bundle_"
"""Key of a subcommand's YAML with the groups that a bundle fills."""
TEXT = "_text_"
"""Key of a subcommand's YAML with its keys for sentences and expressions, which need no quotes."""
_SPECIAL = ("defaults", "hydra", TARGET, FROM_BUNDLE, TEXT)
_FILLING = ("experiment", "processor")
"""Groups whose choices set keys of other groups."""


@dataclass(frozen=True)
class Subcommand:
    """Facts about a subcommand, and about those whose keys it includes.

    Args:
        name: of its YAML.
        target: path of its class, "" without one.
        values: its own keys, with their values.
        bases: names of the subcommands whose keys it includes.
        needed: its required keys.
        optional: its empty slots and lists of choices.
        texts: its keys for sentences and expressions.
        from_bundle: the groups that a bundle fills, each with the bundle's node for it.
    """

    name: str
    target: str
    values: Mapping[str, Any]
    bases: tuple[str, ...]
    needed: tuple[str, ...]
    optional: tuple[str, ...]
    texts: tuple[str, ...]
    from_bundle: Mapping[str, str]


@cache
def read_subcommand(name: str, folder: Path = CONF) -> Subcommand:
    """Read the YAML of a subcommand in a folder, which includes those beside it or shipped ones.

    Raises:
        UserError: if the file is not plain YAML with keys.
    """
    file = folder / f"{name}.yaml"
    document = read_yaml(file)
    kinds = {"defaults": list, TEXT: list, FROM_BUNDLE: dict}
    if not isinstance(document, dict) or not all(
        isinstance(document.get(key, kind()), kind) for key, kind in kinds.items()
    ):
        raise UserError(f"{file} must have lists at defaults and {TEXT}, keys at {FROM_BUNDLE}")
    entries, texts = document.get("defaults", []), document.get(TEXT, [])
    values = {key: value for key, value in document.items() if key not in _SPECIAL}
    needed, optional, bases = [*values], list[str](), list[Subcommand]()
    for entry in entries:
        for directory in (folder, CONF) if isinstance(entry, str) else ():
            if (directory / f"{entry}.yaml").is_file():
                bases.append(read_subcommand(entry, directory))
                break
    for base in bases:
        needed, optional = [*needed, *base.needed], [*optional, *base.optional]
    for group, choice in (
        pair for entry in entries if isinstance(entry, dict) for pair in entry.items()
    ):
        if not group.startswith("override ") and group not in _FILLING:
            required = isinstance(choice, str) and not group.startswith("optional ")
            keys = needed if required else optional
            keys.append(group.removeprefix("optional ").rpartition("@")[2])
    return Subcommand(
        name=name,
        target=str(document.get(TARGET, "")),
        values=values,
        bases=tuple(base.name for base in bases),
        needed=tuple(needed),
        optional=tuple(optional),
        texts=(*texts, *(key for base in bases for key in base.texts)),
        from_bundle=document.get(FROM_BUNDLE, {}),
    )
