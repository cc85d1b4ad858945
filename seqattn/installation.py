"""Paths of `conf` and `data`, and how to install extras: in a checkout, and once installed."""

import re
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def shipped(name: str) -> Path:
    """Return the directory `conf`, or `data` with the bundled corpora. Args: name: which one."""
    return _PACKAGE.parent / name if _in_checkout() else _PACKAGE / "shipped" / name


def install(extra: str) -> str:
    """Return what to do to install an extra, for the end of a message. Args: extra: its name."""
    if _in_checkout():
        return f"run pip install -c constraints.txt -e '.[{extra}]' in the checkout"
    return f"run pip install 'seqattn-toolkit[{extra}]'"


def commands(text: str) -> str:
    """Return a text whose commands start scripts, or subcommands where there are no scripts."""
    return text if _in_checkout() else re.sub(r"python (?:scripts/)?(\w+)\.py", r"seqattn \1", text)


def _in_checkout() -> bool:
    return (_PACKAGE.parent / "pyproject.toml").is_file()


CONF = shipped("conf")
"""Directory of the subcommands' YAML files and config groups."""
