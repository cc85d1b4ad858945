"""Layers: what stands between attention and a model."""
