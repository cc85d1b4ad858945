"""Keys that are not there, or that were taken away, refused before anything heavy is imported."""

from collections.abc import Iterator

import yaml

from seqattn.bundle.nodes import nearest
from seqattn.config.compose import CONF, Settings
from seqattn.errors import UserError

_ELSEWHERE = ("search", "experiment", "processor")
"""Groups whose choices fill the keys of others."""


def check_keys(verb: str, settings: Settings) -> None:
    """Refuses settings with a key that the verb does not know, or without one that it needs.

    Raises:
        UserError: naming the key, and the nearest right one.
    """
    document = yaml.safe_load((CONF / f"{verb}.yaml").read_text(encoding="utf-8"))
    own = [key for key in document if key not in ("defaults", "hydra")]
    filled = dict(_filled(document["defaults"]))
    known = [*own, *filled]
    for key in settings:
        if key not in known:
            raise UserError(f"there is no key {key}{nearest(key, known)}")
    for key in (*own, *(key for key, choice in filled.items() if isinstance(choice, str))):
        if key not in settings:
            raise UserError(f"{key} must be given; leave ~{key} out")


def _filled(defaults: list[object]) -> Iterator[tuple[str, object]]:
    """The keys that a list of defaults fills, and what each is filled with."""
    for entry in defaults:
        for group, choice in entry.items() if isinstance(entry, dict) else ():
            if not str(group).startswith("override ") and group not in _ELSEWHERE:
                yield str(group).rpartition("@")[2], choice
