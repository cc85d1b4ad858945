"""Attention, composed of heads, a kernel and a position scheme."""
