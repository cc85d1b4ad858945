"""Export of bundles to other engines: the verb export."""

NEEDS: tuple[str, ...] = ()
"""Extras that it imports."""
