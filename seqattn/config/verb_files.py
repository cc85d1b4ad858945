"""Facts about verbs, read from their YAML files."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import yaml

from seqattn.places import CONF
from seqattn.settings.nodes import TARGET

FROM_BUNDLE = "_from_bundle_"
"""Key of a verb's YAML with the groups that a bundle fills."""
TEXT = "_text_"
"""Key of a verb's YAML with its keys for sentences, whose values need no quotes."""


def own_keys(verb: str) -> list[str]:
    """Return the keys with values in a verb's own YAML."""
    special = ("defaults", "hydra", TARGET, FROM_BUNDLE, TEXT)
    return [key for key in document(verb) if key not in special]


def bases(verb: str) -> list[str]:
    """Return the verbs whose keys a verb includes."""
    defaults = document(verb).get("defaults", [])  # a verb outside the package has no file here
    return [entry for entry in defaults if isinstance(entry, str) and entry != "_self_"]


def verb_class(verb: str) -> str:
    """Return the path of the class that a verb's YAML names."""
    return str(document(verb)[TARGET])


def from_bundle(verb: str) -> Mapping[str, str]:
    """Return the groups that a bundle fills, each with the bundle's node for it."""
    filled: Mapping[str, str] = document(verb).get(FROM_BUNDLE) or {}
    return filled


def text_keys(verb: str) -> list[str]:
    """Return the keys for sentences."""
    return [key for one in (verb, *bases(verb)) for key in document(one).get(TEXT, [])]


@cache
def document(verb: str) -> dict[str, Any]:
    """Return the content of a verb's YAML, empty without a file."""
    file = CONF / f"{verb}.yaml"
    content: dict[str, Any] = yaml.safe_load(file.read_text("utf-8")) if file.is_file() else {}
    return content
