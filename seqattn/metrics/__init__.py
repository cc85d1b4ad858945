"""Metrics that sum over batches and ranks, and wrappers of standard scorers."""
