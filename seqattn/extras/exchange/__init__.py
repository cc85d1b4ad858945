"""Models in and out: the verbs import and export, and the engine CTranslate2."""

NEEDS: tuple[str, ...] = ()
"""Extras that it imports."""
