"""Bundles with fewer heads or weights in int8: the verb convert."""

NEEDS: tuple[str, ...] = ("explain",)
"""Extras that it imports."""
