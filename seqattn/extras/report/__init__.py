"""Page about the outputs of bundles for some sentences: the subcommand report."""

NEEDS: tuple[str, ...] = ("explain",)
"""Extras that it imports."""
