"""Corpora created with a model's help: the subcommands distil, backtranslate and retrieve."""

NEEDS: tuple[str, ...] = ()
"""Extras that it imports."""
