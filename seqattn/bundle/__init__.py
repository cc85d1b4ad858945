"""Bundles: a trained model with its tokenizer and configuration."""
