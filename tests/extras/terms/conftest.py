"""A bundle that nobody trained."""

from tests.bundle.conftest import bundle, tokenizer

__all__ = ["bundle", "tokenizer"]
