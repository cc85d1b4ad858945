"""A page that shows what bundles make of some sentences: the verb report."""

NEEDS: tuple[str, ...] = ("explain",)
"""Extras that it imports."""
