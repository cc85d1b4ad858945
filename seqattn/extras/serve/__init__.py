"""HTTP server of a bundle: the subcommand serve."""

NEEDS: tuple[str, ...] = ("explain", "report")
"""Extras that it imports."""
