"""Ids that every vocabulary keeps."""

PAD, UNK, BOS, EOS = 0, 1, 2, 3
"""Padding, an unknown word, begin and end of a sequence."""
RESERVED = 4
"""Ids below this one stand for no text."""
