"""Shards of corpora larger than memory: the verb prepare. The core reads them."""

NEEDS: tuple[str, ...] = ()
"""Extras that it imports."""
