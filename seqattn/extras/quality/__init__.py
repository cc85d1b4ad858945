"""Quality of outputs: signals, expected scores, labels, and words to check."""

NEEDS: tuple[str, ...] = ("explain",)
"""Extras that it imports."""
