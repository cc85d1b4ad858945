"""Comparison of systems over seeds, with intervals and tests: the subcommand compare."""

NEEDS: tuple[str, ...] = ("pictures",)
"""Extras that it imports."""
