"""Training on documents: rows that join consecutive pairs by line breaks."""

NEEDS: tuple[str, ...] = ()
"""Extras that it imports."""
