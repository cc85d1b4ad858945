"""Attributions of outputs, roles of heads, probes of states: the verbs explain, heads and probe."""

NEEDS: tuple[str, ...] = ("pictures",)
"""Extras that it imports."""
