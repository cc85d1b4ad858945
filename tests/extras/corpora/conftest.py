"""The bundles that corpora are made with."""

from tests.runs.conftest import corpus, writers  # noqa: F401
