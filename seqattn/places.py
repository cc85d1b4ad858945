"""Paths of `conf` and `data`: beside the package in a checkout, inside it once installed."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def shipped(name: str) -> Path:
    """Return the directory `conf`, or `data` with the bundled corpora. Args: name: which one."""
    root = _PACKAGE.parent
    checkout = (root / "pyproject.toml").is_file()
    return root / name if checkout else _PACKAGE / "shipped" / name


CONF = shipped("conf")
"""Directory of the verbs' YAML files and config groups."""
