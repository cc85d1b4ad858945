"""Shards of corpora larger than memory: the subcommand prepare, and a source that reads them."""

NEEDS: tuple[str, ...] = ()
"""Extras that it imports."""
