"""Where `conf` and `data` are: beside the package in a checkout, inside it once it is installed."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def shipped(name: str) -> Path:
    """The folder `conf`, or `data` with the bundled corpora. Args: name: which of them."""
    home = _PACKAGE.parent
    checkout = (home / "pyproject.toml").is_file()
    return home / name if checkout else _PACKAGE / "shipped" / name


CONF = shipped("conf")
"""The folder of the verbs' YAML and of all choices."""
