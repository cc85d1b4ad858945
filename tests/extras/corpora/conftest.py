"""The bundles that corpora are made with."""

from tests.verbs.conftest import writers  # noqa: F401
