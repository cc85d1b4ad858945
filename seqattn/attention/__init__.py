"""Attention: heads, a kernel and a position scheme that compose."""
