"""Layers, which models are built from."""
