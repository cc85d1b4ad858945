"""Files that translators have, in and out: subtitles, catalogs, documents, pages."""

NEEDS: tuple[str, ...] = ()
"""Extras that it imports."""
