"""Noise on pairs of texts, to train models that are robust to it and to measure that they are."""

NEEDS: tuple[str, ...] = ()
"""Extras that it imports."""
