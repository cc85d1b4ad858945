"""Encoder-decoder models behind one contract."""
