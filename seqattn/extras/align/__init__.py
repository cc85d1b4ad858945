"""Word alignment of given pairs: the verb align."""

NEEDS: tuple[str, ...] = ()
"""Extras that it imports."""
