"""Metrics: counts that sum over batches and ranks, and the field's own scorers."""
