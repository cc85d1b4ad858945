"""Corpora created with a model's help: the verbs distil, backtranslate and retrieve."""

NEEDS: tuple[str, ...] = ()
"""Extras that it imports."""
