"""Files that translators have, in and out: subtitles and catalogs of messages."""

NEEDS: tuple[str, ...] = ()
"""Extras that it imports."""
