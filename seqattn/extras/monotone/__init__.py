"""Monotonic attention of recurrent decoders: expected and hard, in chunks, and marginalized."""

NEEDS: tuple[str, ...] = ()
"""Extras that it imports."""
