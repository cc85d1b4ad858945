"""Facts about subcommands, read from their YAML files."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import yaml

from seqattn.places import CONF
from seqattn.settings.nodes import TARGET

FROM_BUNDLE = "_from_bundle_"
"""Key of a subcommand's YAML with the groups that a bundle fills."""
TEXT = "_text_"
"""Key of a subcommand's YAML with its keys for sentences and expressions, which need no quotes."""


def own_keys(subcommand: str) -> list[str]:
    """Return the keys with values in a subcommand's own YAML."""
    special = ("defaults", "hydra", TARGET, FROM_BUNDLE, TEXT)
    return [key for key in document(subcommand) if key not in special]


def bases(subcommand: str) -> list[str]:
    """Return the subcommands whose keys a subcommand includes."""
    defaults = document(subcommand).get("defaults", [])  # one of others has no file here
    return [entry for entry in defaults if isinstance(entry, str) and entry != "_self_"]


def subcommand_class(subcommand: str) -> str:
    """Return the path of the class that a subcommand's YAML names."""
    return str(document(subcommand)[TARGET])


def from_bundle(subcommand: str) -> Mapping[str, str]:
    """Return the groups that a bundle fills, each with the bundle's node for it."""
    filled: Mapping[str, str] = document(subcommand).get(FROM_BUNDLE) or {}
    return filled


def text_keys(subcommand: str) -> list[str]:
    """Return the keys for sentences and expressions."""
    return [key for one in (subcommand, *bases(subcommand)) for key in document(one).get(TEXT, [])]


@cache
def document(subcommand: str) -> dict[str, Any]:
    """Return the content of a subcommand's YAML, empty without a file."""
    file = CONF / f"{subcommand}.yaml"
    content: dict[str, Any] = yaml.safe_load(file.read_text("utf-8")) if file.is_file() else {}
    return content
