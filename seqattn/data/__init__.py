"""Text becomes ids, ids become batches.

Import from the modules: `tokenizer` and `batch` need no `datasets`, so that a bundle can
generate where only its own requirements are installed.
"""
