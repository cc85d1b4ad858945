"""Cleaning of corpora: the subcommand clean."""

NEEDS: tuple[str, ...] = ("corpora", "shards")
"""Extras that it imports."""
