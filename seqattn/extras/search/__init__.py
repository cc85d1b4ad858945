"""Search for the attention and sizes that suit given data: the subcommand search."""

NEEDS: tuple[str, ...] = ("compare",)
"""Extras that it imports."""
