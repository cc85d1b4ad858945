"""Training from Python, with command-line overrides or plain values by key."""

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import open_dict

from seqattn.cli.error_messages import in_words
from seqattn.config.compose import register_resolvers, settings_of_training
from seqattn.config.overrides import complete, quoted
from seqattn.config.subcommand import read_subcommand
from seqattn.config.user_choices import folders_first
from seqattn.errors import UserError
from seqattn.installation import CONF
from seqattn.settings.nodes import build_subcommand
from seqattn.training.result import TrainingResult
from seqattn.training.run_directory import remove_empty

_TRAIN = read_subcommand("train")


def train_from(words: Sequence[str], values: Mapping[str, Any]) -> TrainingResult:
    """Train with overrides and plain values by key; see `seqattn.train`."""
    overrides = [*words, *(f"{key}={_word(value, key)}" for key, value in values.items())]
    created = register_resolvers()
    try:
        settings = _settings(overrides)
        if settings["find_lr"]:
            raise UserError("find_lr=true needs the command line: seqattn train find_lr=true")
        result: TrainingResult = build_subcommand(_TRAIN.target, settings).run()
        return result
    finally:
        for directory in created.values():
            remove_empty(Path(directory))


def _settings(overrides: Sequence[str]) -> dict[str, Any]:
    try:
        with (
            folders_first(overrides),
            initialize_config_dir(config_dir=str(CONF), version_base="1.3"),
        ):
            config = compose("train", complete(_TRAIN, overrides), return_hydra_config=True)
            HydraConfig.instance().set_config(config)
            with open_dict(config):
                del config["hydra"]
            return settings_of_training(_TRAIN, config)
    except Exception as error:
        line = in_words(error, started=False)
        if line is None or isinstance(error, UserError):
            raise
        raise UserError(line) from error


def _word(value: Any, key: str) -> str:
    """Write the plain value of a key in the grammar of overrides."""
    if isinstance(value, Mapping):
        parts = (f"{name}:{_word(part, key)}" for name, part in value.items())
        return f"{{{','.join(parts)}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(_word(part, key) for part in value)}]"
    if isinstance(value, str | PathLike):
        return quoted(fspath(value))
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    raise UserError(f"{key} must be a plain value, got a {type(value).__name__}")
