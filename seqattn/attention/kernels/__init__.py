"""Kernels: which keys a query sees, and how scores become weights."""
