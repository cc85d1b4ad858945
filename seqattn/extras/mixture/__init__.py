"""Training on several sources, each batch from one, by weights that change in stages."""

NEEDS: tuple[str, ...] = ()
"""Extras that it imports."""
