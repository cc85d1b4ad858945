"""HTTP server of a bundle: the verb serve."""

NEEDS: tuple[str, ...] = ("explain", "report")
"""Extras that it imports."""
