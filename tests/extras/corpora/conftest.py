"""The bundles that corpora are made with."""

from tests.subcommands.conftest import writers  # noqa: F401
