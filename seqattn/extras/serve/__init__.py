"""A bundle behind HTTP: the verb serve."""

NEEDS: tuple[str, ...] = ("explain", "report")
"""Extras that it imports."""
