"""Pictures and health of attention: analyze, and what a training run draws and logs."""

NEEDS: tuple[str, ...] = ()
"""Extras that it imports."""
