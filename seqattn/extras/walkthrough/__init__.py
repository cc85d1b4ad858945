"""A page on which a bundle translates what is typed, with every number shown: walkthrough."""

NEEDS: tuple[str, ...] = ()
"""Extras that it imports."""
