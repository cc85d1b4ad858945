"""Word alignment of given pairs: the subcommand align."""

NEEDS: tuple[str, ...] = ()
"""Extras that it imports."""
