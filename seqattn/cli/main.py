"""Running a subcommand through Hydra's main, and its exit code."""

import logging
import os
import re
import signal
import sys
import traceback
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from seqattn import __version__
from seqattn.cli.error_messages import in_words, with_keys
from seqattn.cli.help_page import folder_of, help_page
from seqattn.cli.jobs import SWEEP, Jobs, report_jobs
from seqattn.cli.subcommands import Action, action_of, job_dir
from seqattn.config.compose import register_resolvers
from seqattn.config.overrides import complete
from seqattn.config.subcommand import read_subcommand
from seqattn.config.user_choices import folders_first
from seqattn.errors import Stopped, UserError
from seqattn.inputs import read_yaml
from seqattn.installation import CONF
from seqattn.processes import (
    SignalInterrupt,
    end_quietly,
    end_with,
    ended_by_signals,
    is_orphaned,
    write_utf8,
)
from seqattn.storage import is_file
from seqattn.training.rank_messages import rank_messages
from seqattn.training.ranks import check_ranks, rank, world_size
from seqattn.training.run_directory import remove_empty

_RUN_DIR_KEYS = ("run_dir=", "hydra.run.dir=", "hydra.sweep.dir=")
"""Keys that set a run's directory; with one, repeating the command resumes the run."""
_SINGLE = re.compile(r"(trust=)([A-Za-z_][\w.]*)\Z")
"""A list of a single package without its brackets."""
_SAVING = 30.0
"""Seconds for a job to save after its command has ended."""

_FLAGS = (
    ("--hydra-help",), ("--version",), ("--resolve",), ("--run", "-r"), ("--multirun", "-m"),
    ("--shell-completion", "-sc"),
)  # fmt: skip
_VALUED = (
    ("--package", "-p"), ("--config-name", "-cn"), ("--config-dir", "-cd"),
    ("--experimental-rerun",),
)  # fmt: skip
"""Hydra's options, without and with a value."""


def run_subcommand(
    name: str, arguments: Sequence[str], action: Action | None = None, conf: Path = CONF
) -> int:
    """Run a subcommand and return the exit code, 2 with one line for a user error.

    Args:
        name: of its YAML.
        arguments: command-line arguments.
        action: function to run; None for the one of the YAML's class.
        conf: folder of its YAML, if `--config-dir` has none; missing choices are read from `CONF`.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:  # else ranks would outlive torchrun
        end_with(os.getppid())
    write_utf8()
    try:
        check_ranks()
    except UserError as error:
        return report(f"error: {error}", 2)
    logging.raiseExceptions = False  # in case the reader of Hydra's pages closes the pipe
    jobs, code = _Jobs(action), 0
    try:
        try:
            with ended_by_signals():
                _run(name, list(arguments), jobs, conf)
        except SystemExit as end:  # after a page of help
            code = end.code if isinstance(end.code, int) else 0
        try:
            print(end="", flush=True)  # a closed pipe is expected here, not at exit
        except BrokenPipeError:
            raise
        except OSError:  # a full disk
            end_quietly()
            if not code:  # else it has been reported
                raise
    except KeyboardInterrupt as stop:
        return report(
            "stopped", 128 + (stop.args[0] if isinstance(stop, SignalInterrupt) else signal.SIGINT)
        )
    except BrokenPipeError:
        return end_quietly() or code
    except Exception as error:
        line = in_words(error, bool(jobs.started))
        if jobs.failed:
            s = "s" if len(jobs.failed) > 1 else ""
            line = f"job{s} {', '.join(jobs.failed)} failed (message{s} above)"
        if line is None:
            rank_messages.fail(f"another rank failed: {error!r}")  # so that none of them waits
            raise
        return report_error(line)
    return code


def report(line: str, code: int) -> int:
    """Print one line on standard error, and return the exit code."""
    print(" ".join(line.split()), file=sys.stderr, flush=True)
    return code


def report_error(line: str) -> int:
    """Print a user error, on one rank only; return 2."""
    if world_size() == 1 or rank_messages.fail(line):
        report(f"error: {line}", 2)
    return 2


@dataclass
class _Jobs:
    """Action of a command, and what became of its jobs."""

    action: Action | None
    started: int = 0
    failed: list[str] = field(default_factory=list)
    process: int = field(default_factory=os.getpid)

    def __call__(self, config: DictConfig) -> float | None:
        """Run a job; if one of a multirun fails, report it, and others continue."""
        assert self.action is not None
        self.started += 1
        launcher = HydraConfig.get().launcher._target_
        if "joblib" in launcher and os.getpid() != self.process:  # else jobs would outlive it
            end_with(self.process, _SAVING)
        try:
            return self.action(config)
        except BrokenPipeError:
            raise SystemExit(end_quietly()) from None  # Hydra would report another exception
        except Stopped as stop:
            if rank() == 0:
                words = [*HydraConfig.get().overrides.task, *HydraConfig.get().overrides.hydra]
                has_run_dir = any(word.startswith(_RUN_DIR_KEYS) for word in words)
                single = HydraConfig.get().mode is not RunMode.MULTIRUN
                added = f"resume={job_dir()}" if single else f"run_dir={job_dir().parent}"
                again = "run the same command" + f" with {added} added" * (not has_run_dir)
                report(f"{stop}; {again} to resume", stop.code)
            if is_orphaned():
                os._exit(stop.code)  # joblib would start another job unnoticed
            raise SystemExit(stop.code) from None
        except Exception as error:
            line = in_words(error, started=True)
            if HydraConfig.get().mode is not RunMode.MULTIRUN:
                if line is None:
                    raise
                raise SystemExit(report_error(line)) from None
            number = job_dir().name
            self.failed.append(number)
            if line is None:
                traceback.print_exc()  # Hydra reports only the first job's
                line = f"{type(error).__name__}: {error}"
            else:
                report(f"job {number}: {line}", 2)
            if Jobs.elsewhere:  # the command's process knows only what is raised
                raise UserError(f"job {number}: {line}") from None
            return None


def _run(name: str, arguments: list[str], jobs: _Jobs, conf: Path) -> None:
    if not jobs.action:
        conf = folder_of(name, arguments)
    subcommand = read_subcommand(name, conf)
    jobs.action = jobs.action or action_of(subcommand)
    if {"-h", "--help", "help", "--version"} & {*arguments}:
        version = "--version" in arguments  # not Hydra's
        print(f"seqattn {__version__}" if version else help_page(name, arguments, conf))
        return
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra re-raises exceptions, to be reported here
    created = register_resolvers()
    options, overrides, folders = _split_arguments(name, arguments)
    overrides = [_SINGLE.sub(r"\1[\2]", override) for override in overrides]
    if suggestion := with_keys(subcommand, arguments, overrides):
        raise UserError(f"each argument needs a key; did you mean: {suggestion}")
    if folders or any(
        override.startswith(("trust=", "hydra.searchpath=")) for override in overrides
    ):
        sys.path.append(str(Path.cwd()))  # usual location of a user's package
    options += ["--config-dir", str(CONF)] if conf != CONF else []
    run = hydra.main(version_base="1.3", config_path=str(conf.absolute()), config_name=name)
    argv, sys.argv = sys.argv, [sys.argv[0], *options, *complete(subcommand, overrides)]
    try:
        with folders_first(overrides, folders):
            run(jobs)()
        folder = Jobs.path
        if folder is not None and not jobs.started and not Jobs.elsewhere:
            if [file.name for file in folder.iterdir()] == [SWEEP]:
                (folder / SWEEP).unlink()
                remove_empty(folder)
            raise UserError("-m has no jobs: a range, choice or glob has no values")
        if jobs.failed:
            raise UserError("jobs failed")
    except OSError as error:
        if not error.filename:  # of a file that Hydra writes in the folder of a multirun
            error.filename = Jobs.path
        raise
    finally:
        sys.argv = argv
        for directory in created.values():  # removed if empty
            remove_empty(Path(directory))
        report_jobs()


def _split_arguments(
    subcommand: str, arguments: list[str]
) -> tuple[list[str], list[str], list[str]]:
    """Separate options from overrides, since Hydra's parser allows no option between overrides.

    Returns:
        Options, overrides, and the folder of `--config-dir`, if any.

    Raises:
        UserError: for an unknown option.
    """
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    for names in _FLAGS:
        parser.add_argument(*names, action="store_true")
    for names in _VALUED:
        parser.add_argument(*names)
    parser.add_argument("--cfg", "-c", choices=("job", "hydra", "all"))
    pages = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
    parser.add_argument("--info", "-i", nargs="?", choices=pages, const="all")
    parser.add_argument("overrides", nargs="*")

    def refuse(message: str) -> Any:
        word = re.match(r"unrecognized arguments: -+([^\s=]+)", message)
        if word is None:
            raise UserError(message)
        options = ", ".join(names[0] for names in (*_FLAGS, *_VALUED, ("--cfg",), ("--info",)))
        raise UserError(f"{message}; write {word[1]}=VALUE, or choose from --help, {options}")

    parser.error = refuse  # type: ignore[method-assign]
    parsed = parser.parse_intermixed_args(arguments)
    overrides = parsed.overrides
    name = (parsed.config_name or "").removesuffix(".yaml")
    file = Path(parsed.config_dir or CONF) / f"{name}.yaml"
    content = read_yaml(file) if name and is_file(file) else None
    included = content.get("defaults") if isinstance(content, dict) else None
    if name and subcommand not in (included or []):
        raise UserError(
            f"--config-name {name} needs --config-dir DIR, and in DIR/{name}.yaml the line "
            f"'defaults: [{subcommand}, _self_]'"
        )
    options = list(arguments)
    for override in overrides:
        options.remove(override)
    return options, overrides, [parsed.config_dir] if parsed.config_dir else []
