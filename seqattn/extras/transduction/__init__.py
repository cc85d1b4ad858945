"""Words to words: inflection, pronunciation, transliteration, with features of the word.

The pieces of a source such as `Abend;N;DAT(PL)` are its letters, `;N` and `;DAT(PL)`.
"""

NEEDS: tuple[str, ...] = ()
"""Extras that it imports."""
