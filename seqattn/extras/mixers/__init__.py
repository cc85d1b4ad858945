"""Recurrent mixers in place of self-attention, whose state has constant size."""

NEEDS: tuple[str, ...] = ()
"""Extras that it imports."""
