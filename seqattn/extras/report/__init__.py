"""Page about the outputs of bundles for some sentences: the verb report."""

NEEDS: tuple[str, ...] = ("explain",)
"""Extras that it imports."""
