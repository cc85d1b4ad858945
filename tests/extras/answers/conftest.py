"""Data of questions stay in no cache of the user."""

from tests.data.conftest import _own_cache  # noqa: F401
