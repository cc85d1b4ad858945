"""Synthetic tasks that tell mechanisms apart: a data source, and a scorer by position."""

NEEDS: tuple[str, ...] = ()
"""Extras that it imports."""
