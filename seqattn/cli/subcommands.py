"""Actions of the subcommands, with a configuration composed by Hydra."""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from seqattn.cli.jobs import SWEEP
from seqattn.config.compose import resolve_settings, settings_of_training
from seqattn.config.subcommand import Subcommand
from seqattn.errors import UserError
from seqattn.installation import CONF
from seqattn.settings.nodes import TARGET, Node, build, build_subcommand
from seqattn.storage import is_file, user_path
from seqattn.training.run_directory import remove_empty

Action = Callable[[DictConfig], float | None]


def action_of(subcommand: Subcommand) -> Action:
    """Return the action of a subcommand, which builds the class of its YAML and runs it.

    Raises:
        UserError: if the YAML names no class, or an extra that it needs is not installed.
    """
    if not subcommand.target:
        raise UserError(f"{subcommand.name}.yaml is no subcommand without _target_: PACKAGE.CLASS")
    waiting = re.findall(r"^seqattn\.extras\.(\w+)\.", subcommand.target)
    while waiting:
        name = f"seqattn.extras.{waiting.pop()}"
        try:
            waiting += import_module(name).NEEDS
        except ModuleNotFoundError as error:
            raise UserError(f"{subcommand.name} needs {name}, which is not installed") from error
    over_trainings = _run_over_trainings if "train" in subcommand.bases else _run
    return partial(_train if subcommand.name == "train" else over_trainings, subcommand)


def _run(subcommand: Subcommand, config: DictConfig) -> None:
    settings = resolve_settings(subcommand, config)
    _check_output(settings)
    if settings.get("bundle") and sys.stderr is not None and sys.stderr.isatty():
        print(f"loading {settings['bundle']}", file=sys.stderr)
    build_subcommand(subcommand.target, settings).run()  # imports torch


def _check_output(settings: Mapping[str, Node]) -> None:
    """Raise UserError if `output` is a file that another setting names, or a bundle.

    Different spellings and links name the same file.
    """
    output = settings.get("output")
    if not isinstance(output, str):
        return
    path = user_path(output)
    for key, value in _texts(settings):
        if key != "output" and _is_same(value, path, key in ("bundle", "bundles", "ensemble")):
            raise UserError(f"output={output} is also {key}; choose another")


def _is_same(text: str, path: Path, is_bundle: bool) -> bool:
    """Return True if a text names an existing file, or a bundle's folder, however spelled."""
    with suppress(OSError, ValueError, UserError):  # most texts name none
        return path.samefile(user_path(text)) and (path.is_file() or is_bundle)
    return False


def _texts(node: Node, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield the texts of settings with their keys."""
    if isinstance(node, str):
        yield key, node
    elif isinstance(node, Mapping):
        for name, value in node.items():
            yield from _texts(value, f"{key}.{name}".lstrip("."))
    elif isinstance(node, Sequence):
        for value in node:
            yield from _texts(value, key)


def job_dir() -> Path:
    """Return the directory of Hydra's current job."""
    directory = Path(HydraConfig.get().runtime.output_dir)
    return directory.relative_to(Path.cwd()) if directory.is_relative_to(Path.cwd()) else directory


def _train(subcommand: Subcommand, config: DictConfig) -> float | None:
    """Train; return the monitored value for a sweeper."""
    run_dir = job_dir()
    try:
        settings = settings_of_training(subcommand, config, run_dir=str(run_dir))
        is_multirun = HydraConfig.get().mode == RunMode.MULTIRUN
        if is_multirun and isinstance(settings["resume"], str) and settings["resume"] != "auto":
            raise UserError(
                f"resume={settings['resume']} and -m are mutually exclusive, as each job of a "
                "multirun has its own run"
            )
        if is_multirun:
            settings["sweep"] = run_dir.parent.name
        elif is_file(run_dir / SWEEP):
            raise UserError(
                f"run_dir={run_dir} holds the jobs of -m; repeat their command, with -m, to resume "
                "them, or choose another run_dir"
            )
        run = build_subcommand(subcommand.target, settings)
        result: float | None = run.find_rate() if run.find_lr else run.run().monitored
        return result
    finally:
        remove_empty(run_dir)  # created by Hydra


def _run_over_trainings(subcommand: Subcommand, config: DictConfig) -> None:
    """Run a subcommand that includes the keys of train, such as search.

    Its class gets the settings of a training run, and a command line that reproduces them.
    """
    run_dir = job_dir()
    try:
        settings = resolve_settings(subcommand, config, run_dir=str(run_dir))
        arguments = {key: settings.pop(key) for key in subcommand.values if key != "run_dir"}
        words = [
            word
            for word in HydraConfig.get().overrides.task
            if word.partition("=")[0].partition(".")[0] not in ("run_dir", *arguments)
        ]
        sources = HydraConfig.get().runtime.config_sources
        added = [
            source.path
            for source in sources
            if source.provider in ("main", "command-line") and source.path != str(CONF)
        ]
        hydra_words = HydraConfig.get().overrides.hydra
        paths = [word for word in hydra_words if word.startswith("hydra.searchpath=")]
        arguments |= {
            TARGET: subcommand.target,
            "run_dir": str(run_dir),
            "seed": settings["seed"],
            "overrides": words,
            "options": [*(word for path in added for word in ("--config-dir", path)), *paths],
        }
        run = build(arguments)
        replace(run, settings=settings).run()
    finally:
        remove_empty(run_dir)
