"""Sentences of texts, for models that read single ones."""

NEEDS: tuple[str, ...] = ()
"""Extras that it imports."""
