"""Token ids reserved in every vocabulary."""

PAD, UNK, BOS, EOS = 0, 1, 2, 3
"""Padding, unknown word, begin and end of a sequence."""
RESERVED = 4
"""Ids below this one are not text."""
