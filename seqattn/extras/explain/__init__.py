"""Attributions of outputs, roles of heads, probes of states: explain, heads and probe."""

NEEDS: tuple[str, ...] = ("pictures",)
"""Extras that it imports."""
