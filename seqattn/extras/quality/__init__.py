"""How far to trust an output: signals, expected scores, labels, and words to check."""

NEEDS: tuple[str, ...] = ("explain",)
"""Extras that it imports."""
