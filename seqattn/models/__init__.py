"""Encoder-decoder models with one interface."""
