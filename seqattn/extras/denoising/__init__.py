"""Denoising: pairs of a noised text and the original, made from plain text."""

NEEDS: tuple[str, ...] = ()
"""Extras that it imports."""
