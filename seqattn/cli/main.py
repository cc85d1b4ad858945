"""How a verb is run, by Hydra's own main, and how it ends."""

import logging
import os
import sys
import traceback
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from seqattn.cli.help_page import help_page
from seqattn.cli.jobs import tell_jobs
from seqattn.cli.verbs import Action, action_of, run_home
from seqattn.cli.wording import in_words
from seqattn.config.compose import register_resolvers
from seqattn.config.overrides import complete
from seqattn.errors import Stopped, UserError
from seqattn.places import CONF
from seqattn.processes import end_with, is_orphaned, write_utf8
from seqattn.training.rendezvous import rendezvous
from seqattn.training.run_directory import rank, remove_empty, world_size

_PLACES = ("run_dir=", "hydra.run.dir=", "hydra.sweep.dir=")
"""Where a command says its files go; the same command goes on there."""
_SAVING = 30.0
"""Seconds that a job has to save once its command is gone."""

_FLAGS = (
    ("--hydra-help",), ("--version",), ("--resolve",), ("--run", "-r"), ("--multirun", "-m"),
    ("--shell-completion", "-sc"),
)  # fmt: skip
_VALUED = (
    ("--cfg", "-c"), ("--package", "-p"), ("--config-path", "-cp"), ("--config-name", "-cn"),
    ("--config-dir", "-cd"), ("--experimental-rerun",),
)  # fmt: skip
"""Hydra's options, without and with a value."""


def run_verb(
    verb: str, arguments: Sequence[str], action: Action | None = None, conf: Path = CONF
) -> int:
    """Run a verb and return the exit code, 2 after one line where the user must mend something.

    Args:
        verb: its name, and that of its YAML.
        arguments: of the command line.
        action: what it does; None for a verb of the table.
        conf: the folder of its YAML; choices that are not there are those of `CONF`.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:  # torchrun's ranks would go on without it
        end_with(os.getppid())
    write_utf8()
    logging.raiseExceptions = False  # of Hydra's pages, where their reader has enough
    jobs = _Jobs()
    try:
        _run(verb, list(arguments), jobs, action, conf)
    except KeyboardInterrupt:
        return told("stopped", 130)
    except BrokenPipeError:
        return unread()
    except SystemExit as end:  # after a page of help
        return end.code if isinstance(end.code, int) else 0
    except Exception as error:
        line = in_words(error, bool(jobs.started))
        if jobs.failed:
            line = f"jobs {', '.join(jobs.failed)} failed, see above"
        if line is None:
            rendezvous.refuse(f"another rank has failed: {error!r}")  # none waits for this one
            raise
        return refused(line)
    return 0


def told(line: str, code: int) -> int:
    """Prints one line on standard error, and returns the exit code."""
    print(" ".join(line.split()), file=sys.stderr, flush=True)
    return code


def refused(line: str) -> int:
    """Says what the user must mend, on one rank of those that refuse together; returns 2."""
    if world_size() == 1 or rendezvous.refuse(line):
        told(f"error: {line}", 2)
    return 2


def unread() -> int:
    """Ends quietly when the reader has enough: what is still to be written goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


@dataclass
class _Jobs:
    """What became of the jobs of a command."""

    started: int = 0
    failed: list[str] = field(default_factory=list)
    process: int = field(default_factory=os.getpid)


def _run(verb: str, arguments: list[str], jobs: _Jobs, action: Action | None, conf: Path) -> None:
    action = action or action_of(verb)
    if {"-h", "--help"} & set(arguments):
        print(help_page(verb, arguments, conf))
        return
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra hands every exception on, to be worded here
    made = register_resolvers()
    options, overrides = _parted(arguments)
    if any(option.startswith("--config-dir") for option in options) or any(
        override.startswith(("trust=", "hydra.searchpath=")) for override in overrides
    ):
        sys.path.append(str(Path.cwd()))  # where a user's own package usually is
    options += ["--config-dir", str(CONF)] if conf != CONF else []
    run = hydra.main(version_base="1.3", config_path=str(conf), config_name=verb)
    before, sys.argv = sys.argv, [sys.argv[0], *options, *complete(verb, overrides)]
    try:
        run(_job(action, jobs))()
    finally:
        sys.argv = before
        for place in made.values():  # in which nothing came of it
            remove_empty(Path(place))
        tell_jobs()


def _parted(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Options and overrides, apart: Hydra's parser takes no option between two overrides.

    Raises:
        UserError: for an option that is not there.
    """
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    for names in _FLAGS:
        parser.add_argument(*names, action="store_true")
    for names in _VALUED:
        parser.add_argument(*names)
    parser.add_argument("--info", "-i", nargs="?")
    parser.add_argument("overrides", nargs="*")

    def refuse(message: str) -> Any:
        options = ", ".join(names[0] for names in (*_FLAGS, *_VALUED, ("--info",)))
        raise UserError(f"{message}; the options are: --help, {options}")

    parser.error = refuse  # type: ignore[method-assign]
    overrides = parser.parse_intermixed_args(arguments).overrides
    options = list(arguments)
    for override in overrides:
        options.remove(override)
    return options, overrides


def _job(task: Action, jobs: _Jobs) -> Action:
    """The verb as Hydra calls it: a job of a multirun that fails says so, and lets others run."""

    @wraps(task)
    def job(config: DictConfig) -> float | None:
        jobs.started += 1
        launcher = HydraConfig.get().launcher._target_
        if "joblib" in launcher and os.getpid() != jobs.process:  # they would go on without it
            end_with(jobs.process, _SAVING)
        try:
            return task(config)
        except BrokenPipeError:
            raise SystemExit(unread()) from None  # Hydra would tell of another exception
        except Stopped as stop:
            if rank() == 0:
                words = [*HydraConfig.get().overrides.task, *HydraConfig.get().overrides.hydra]
                given = any(word.startswith(_PLACES) for word in words)
                alone = HydraConfig.get().mode is not RunMode.MULTIRUN
                place = f"resume={run_home()}" if alone else f"run_dir={run_home().parent}"
                again = "run the same command" if given else f"add {place}"
                told(f"{stop}; {again} to go on", stop.code)
            if is_orphaned():
                os._exit(stop.code)  # joblib has another job in store, of which nobody would know
            raise SystemExit(stop.code) from None
        except Exception as error:
            line = in_words(error, started=True)
            if HydraConfig.get().mode is not RunMode.MULTIRUN:
                if line is None:
                    raise
                raise SystemExit(refused(line)) from None
            number = run_home().name
            jobs.failed.append(number)
            if line is None:
                traceback.print_exc()  # Hydra tells of the first job's alone
                raise
            told(f"job {number}: {line}", 2)
            raise UserError(f"job {number}: {line}") from None

    return job
