"""Entry point of `scripts/benchmark.py`: run a suite from a Hydra configuration."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from seqattn.cli.main import run_subcommand
from seqattn.config.compose import plain
from seqattn.errors import UserError
from seqattn.settings.choices import choices
from seqattn.settings.nodes import build
from seqattn.storage import user_path

CONF = Path(__file__).parent / "conf"
_NAMED = {"attentions": "attention", "positions": "position"}
"""Keys of a suite that name choices, by their group."""


def main(arguments: Sequence[str]) -> int:
    """Run a suite and return the exit code. Args: arguments: command-line arguments."""
    return run_subcommand("benchmark", arguments, run_suite, CONF)


def run_suite(config: DictConfig) -> None:
    """Run a suite, and write its figures to `output` if it is set."""
    settings = plain(config)
    output = settings["output"] and user_path(settings["output"])
    if output and not output.parent.is_dir():
        raise UserError(f"the directory of output={output} does not exist; create it first")
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise torch's profiler logs every start
    suite = dict(settings["suite"])
    for key in _NAMED.keys() & suite.keys():
        group, names = _NAMED[key], suite[key]
        known = choices(group)
        if not isinstance(names, list | None):
            first = next(iter(known))
            raise UserError(f"suite.{key} must be a list such as [{first}], got {names!r}")
        for name in names or ():
            if name not in known:
                raise UserError(f"unknown choice {group}={name}; choose from {', '.join(known)}")
        suite[key] = {name: known[name] for name in names or known}
    rows = build(suite, "suite").run()
    if output:
        from benchmarks.suite import write_figures  # torch takes seconds to import

        write_figures(output, settings, rows)
        print(f"written to {output}", file=sys.stderr)
