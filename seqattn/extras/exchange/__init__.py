"""Models in and out: the subcommands import and export, and the engine CTranslate2."""

NEEDS: tuple[str, ...] = ()
"""Extras that it imports."""
