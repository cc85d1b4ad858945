"""Corpora that a model helps to make: the verbs distil, backtranslate and retrieve."""

NEEDS: tuple[str, ...] = ()
"""Extras that it imports."""
