"""Conversion of bundles to fewer heads or to int8 weights: the subcommand convert."""

NEEDS: tuple[str, ...] = ("explain",)
"""Extras that it imports."""
