"""The bundles that corpora are made with."""

from tests.training.conftest import corpus  # noqa: F401
from tests.verbs.conftest import writers  # noqa: F401
