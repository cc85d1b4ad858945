"""Conversion of texts to ids, and of ids to batches.

Import from the modules: `tokenizer` and `batch` do not need `datasets`, so that a bundle can
generate with only its own requirements installed.
"""
