"""From texts to ids, and from ids to batches.

Import from the modules: `tokenizer` and `batch` do not need `datasets`, so that a bundle can
generate with only its own requirements installed.
"""
