"""Files that translators have, in and out: subtitles and catalogs of messages."""

NEEDS: tuple[str, ...] = ("align",)
"""Extras that it imports."""
