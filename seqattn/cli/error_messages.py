"""Messages for user errors, from any exception."""

import difflib
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from traceback import walk_tb
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException
from yaml import YAMLError

from seqattn.config.subcommand import Subcommand
from seqattn.errors import UserError
from seqattn.installation import CONF, install
from seqattn.settings.choices import SLOT_NODES, choices

_EQUIVALENTS = {
    "lr": "optimizer.lr",
    "learning_rate": "optimizer.lr",
    "batch_size": "loader.max_tokens",
    "epochs": "trainer.max_epochs",
    "num_train_epochs": "trainer.max_epochs",
    "steps": "trainer.max_steps",
    "warmup": "schedule.warmup_steps",
    "d_model": "model.dim",
    "hidden_size": "model.dim",
    "layers": "model.encoder_layers",
    "num_layers": "model.encoder_layers",
    "heads": "attention.num_heads",
    "num_heads": "attention.num_heads",
    "max_length": "loader.max_length",
    "num_beams": "generation.beam_size",
    "max_new_tokens": "generation.limit.extra",
    "gpus": "trainer.devices",
    "fp16": "trainer.precision",
    "bf16": "trainer.precision",
    "attention_health": "watch.health",
    "root": "data.files.train",
    "path": "data.files.train",
}
"""Names of keys in other toolkits or earlier versions, and their equivalents here."""
_NO_MEMORY = re.compile("MemoryError|out of memory|can't allocate memory")
_SLOTS = [f"attention@{node}" for node in SLOT_NODES]

_SCORER = "scorer has no choices; set a key of the bundle's, such as scorer.tokenize=none"


def in_words(error: Exception, started: bool) -> str | None:
    """Return one line for a user error, or None for other errors.

    Args:
        error: the exception.
        started: True if the work had begun; before that, a `ValueError` or `TypeError` is
            Hydra's.
    """
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, BrokenPipeError):
        return None  # the reader has closed the pipe
    if isinstance(error, MemoryError | RuntimeError) and _NO_MEMORY.search(repr(error)):
        return "out of memory; lower generation.batch_size, shorten texts or use a smaller model"
    if isinstance(error, YAMLError):
        return f"a config file is not valid YAML: {' '.join(str(error).split())}"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, HydraException | OmegaConfBaseException):
        return next(filter(None, map(_worded, _chain(error))), str(error).partition("\n")[0])
    if isinstance(error, RecursionError) and not started:
        modules = [frame.f_globals.get("__name__") for frame, _ in walk_tb(error.__traceback__)]
        if OverridesParser.__module__ in modules:
            return (
                "cannot parse an argument: its brackets nest too deeply; quote a text, or use YAML"
            )
        return (
            "a choice of --config-dir or hydra.searchpath includes itself in its defaults; give "
            "its file a name that no shipped choice has"
        )
    if isinstance(error, TypeError) and not started:
        return "a choice must be a name, or a list of names; see --help for the choices"
    if isinstance(error, ValueError) and not started:
        none = "NoneType" in str(error)
        hint = "; choose a name, or for none logger=[], ~watch" if none else ""
        return f"{error}{hint}"
    return None


def nearest(wrong: str, options: Iterable[str]) -> str:
    """Return the end of a message with the closest names, else those in its place; "" if none."""
    options = list(options)
    last = wrong.rpartition(".")[2]
    if _EQUIVALENTS.get(last) in options:
        return f"; did you mean {_EQUIVALENTS[last]}?"
    prefix, dot, _ = wrong.rpartition(".")
    beside = [option for option in options if dot and option.rpartition(".")[0] == prefix]
    names = [option.rpartition(".")[2] for option in beside]
    close = [f"{prefix}.{name}" for name in difflib.get_close_matches(last, names, n=1, cutoff=0.5)]
    close = close or [
        option for option in options if option.rpartition(".")[2] == last and option != last
    ]
    if beside and not close:
        return f"; choose from {', '.join(beside)}"
    close = close or difflib.get_close_matches(wrong, options, n=1, cutoff=0.5)
    if not close:  # a similar key in another place
        endings = {option.rpartition(".")[2]: option for option in options}
        close = [endings[end] for end in difflib.get_close_matches(last, endings, n=1, cutoff=0.7)]
    return f"; did you mean {' or '.join(close[:3])}?" if close else ""


def with_keys(subcommand: Subcommand, arguments: Sequence[str], words: Sequence[str]) -> str | None:
    """Return the command that words without keys were meant for, None if that is unclear."""
    lone = [word for word in words if "=" not in word and not word.startswith("~")]
    if not lone or any("" in word.split("=", 1) for word in words):  # spaces around "="
        return None
    text, values = [*subcommand.texts, ""][0], lone
    keys = [key for key, value in subcommand.values.items() if key == "bundle" or value == "???"]
    keys[1:1] = [text] * bool(text)
    if "train" in (subcommand.name, *subcommand.bases):
        shipped = {file.stem for file in (CONF / "experiment").glob("*.yaml")}
        keys[:0] = ["experiment"] * (lone[0] in shipped)
    keys = [key for key in keys if not any(word.startswith(f"{key}=") for word in words)]
    if keys[:1] == ["bundle"] and " " in lone[0]:  # a text
        values = ["RUN/model", *lone]
    index, last = len(keys) - 1, keys[-1:]
    if values[index:] and last in ([text], ["runs"]):  # which take all that is left
        last_value = " ".join(values[index:]) if last == [text] else f"[{','.join(values)}]"
        values = [*values[:index], last_value]
    if len(values) > len(keys):
        return None
    pairs = [f"{key}={shlex.quote(value)}" for key, value in zip(keys, values)]
    quoted = [shlex.quote(word) for word in arguments if word not in lone]
    return " ".join(["seqattn", subcommand.name, *pairs, *quoted])


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _worded(error: BaseException) -> str | None:
    """Return a message for a single exception of Hydra or OmegaConf, or None."""
    if isinstance(error, UserError):
        return str(error)
    match = re.search(r"UserError raised while resolving interpolation: (.*)", str(error))
    if match is not None:  # OmegaConf drops the cause
        return match[1]
    if isinstance(error, MissingConfigException):
        return _unknown_choice(error)
    if isinstance(error, OverrideParseException):
        key, equals, _ = error.override.partition("=")
        if not (key and equals):
            return (
                f"the argument {error.override!r} is not key=value; write no spaces around =, and "
                "quote a value that contains spaces: 'text=\"two words\"'"
            )
        return (
            f"cannot parse the argument {error.override!r}; write key=value, and quote values that "
            "contain commas, brackets, quotes, spaces, non-ASCII letters or any of ~ = # ; &: "
            "'data.root=\"~/mine\"'"
        )
    if isinstance(error, OmegaConfBaseException) and isinstance(error.parent_node, DictConfig):
        if error.key is None or str(error.key) in map(str, error.parent_node):
            return None
        groups = [folder.name for folder in CONF.iterdir() if folder.is_dir()]
        root: Any = error.parent_node
        with suppress(ConfigKeyError):  # above the root
            while True:
                root = OmegaConf.select(root, "..")
        keys = [*_keys(OmegaConf.to_container(root))]
        wrong = str(error.full_key)
        if wrong in groups:
            return f"no config group {wrong} here: this subcommand has none, or ~{wrong} removed it"
        if wrong == "scorer" and "bundle" in root:  # filled by the bundle, without choices
            return _SCORER
        parent, _, key = wrong.partition(".")
        if key.isdecimal():
            return f"unknown key {wrong}; {parent}.KEY=VALUE sets KEY in all of a list that have it"
        having = [name for name, node in choices(parent).items() if key in node]
        if having and _EQUIVALENTS.get(key) not in keys:
            return f"unknown key {wrong}; {parent}={'|'.join(having)} has it"
        return f"unknown key {wrong}{nearest(wrong, [*keys, *groups, 'hydra', *_SLOTS])}"
    if merged := re.match(r"In ('[^']*'): [^\n]*\nCannot merge", str(error)):
        way = "name several choices in defaults, such as 'override attention: [mha, gqa]'"
        return f"the config {merged[1]} has a list where keys belong, or the reverse; {way}"
    if "Ambiguous value for argument" in str(error):
        return f"{str(error).splitlines()[0]}: add -m to run each, or write [a,b] for a list"
    if str(error).startswith("Error resolving interpolation '${data}_${model}'"):
        return "recipe=DATA_MODEL needs data and model; remove ~data or ~model"
    slot = re.match(r"Could not override '([^']*@[^']*)'", str(error))
    if slot is not None:
        return f"unknown key {slot[1]}{nearest(slot[1], _SLOTS)}"
    group = re.match(r"Could not override '([^']*)'\.\s+No match in the defaults", str(error))
    return None if group is None else f"this subcommand has no config group {group[1]}"


def _unknown_choice(error: MissingConfigException) -> str:
    group, _, wrong = (error.missing_cfg_file or "").rpartition("/")
    shipped = (file.stem for file in (CONF / group).glob("*.yaml"))
    options = sorted(name for name in error.options or shipped if not name.startswith("_"))
    if not group:
        return f"unknown config {wrong}"
    if group == "scorer":
        return _SCORER
    hint = nearest(wrong, options)
    extra = {"joblib": "sweep", "submitit": "slurm"}.get(wrong.partition("_")[0])
    if group == "hydra/launcher" and extra:
        return f"{group}={wrong} is not installed; {install(extra)}"
    return f"unknown choice {group}={wrong}{hint}; choose from {', '.join(options)}"


def _keys(node: Any, prefix: str = "") -> Iterator[str]:
    """Yield every dotted key of a configuration, except Hydra's and `_target_`."""
    for key, value in node.items() if isinstance(node, dict) else ():
        if key != "hydra" and not str(key).startswith("_"):
            yield f"{prefix}{key}"
            yield from _keys(value, f"{prefix}{key}.")
