"""Comparison of systems over seeds, with intervals and tests: the verb compare."""

NEEDS: tuple[str, ...] = ("pictures",)
"""Extras that it imports."""
