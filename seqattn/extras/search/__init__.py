"""A search for the attention and sizes that suit some data: the verb search."""

NEEDS: tuple[str, ...] = ("compare",)
"""Extras that it imports."""
