"""Words to words: inflection, pronunciation, transliteration, with features of the word.

A source is a word and, each after a mark, its features: `Abend;N;DAT(PL)`. The pieces of the source
are the characters of the word, and one piece for each feature, such as `;DAT(PL)`.
"""

NEEDS: tuple[str, ...] = ()
"""Extras that it imports."""
