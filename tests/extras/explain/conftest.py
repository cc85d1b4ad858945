"""The vocabulary of small bundles."""

from tests.bundle.conftest import tokenizer  # noqa: F401
