"""From plain settings to the values of a run, with what fits named by the choices of conf."""

from collections.abc import Mapping
from typing import Any

import yaml

from seqattn.bundle.nodes import import_path
from seqattn.config.compose import CONF, Settings
from seqattn.errors import UserError
from seqattn.runs.search import from_settings
from seqattn.runs.train import Misfit, Training


def training(settings: Settings, choices: Mapping[str, str], overrides: list[str]) -> Training:
    """The training run of composed settings.

    Raises:
        UserError: for values that cannot be, or do not fit together, naming what does.
    """
    try:
        return from_settings(
            Training, {**settings, "choices": dict(choices), "overrides": overrides}
        )
    except Misfit as error:
        names = [name for name, value in _declared(error.group, error.needed[0])
                 if value == error.needed[1]]  # fmt: skip
        raise UserError(f"{error}; it takes {', '.join(names)}") from None


def _declared(group: str, attribute: str) -> list[tuple[str, Any]]:
    """What each choice of a group in conf says of itself by a class attribute."""
    found = []
    for file in sorted((CONF / group).glob("*.yaml")):
        node = yaml.safe_load(file.read_text(encoding="utf-8"))
        if "_target_" in node:
            found.append((file.stem, getattr(import_path(node["_target_"]), attribute, None)))
    return found
