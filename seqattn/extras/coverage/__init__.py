"""Coverage of the source: recurrent attention that sees where it has looked, and a loss on it."""

NEEDS: tuple[str, ...] = ()
"""Extras that it imports."""
