"""Glossaries: terms that outputs must or must not have, and the subcommand terms."""

NEEDS: tuple[str, ...] = ()
"""Extras that it imports."""
