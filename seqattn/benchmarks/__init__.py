"""Benchmarks: this package's speed beside that of what one would use instead,
and what can be had without a model."""
