"""What the two sides of a pair should have in common, and what a side should be written in."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from importlib.util import find_spec

_NUMBER = re.compile(r"\d+(?:[.,\u00a0\u202f]\d+)*")
_SCHEMES = ("http://", "https://", "www.")
_SIGNS = ("@", *_SCHEMES)
_AROUND = "\"'()[]{}<>.,;:!?\u201c\u201d\u201e\u2018\u2019\u00ab\u00bb"
"""Signs around an address that are not of it."""
_FEW = 0.05  # share of a side's letters, for a script that it is written in
_SURE = 0.5  # probability of another language
_SHORT = 20  # characters; of shorter texts no language is asked for
Identify = Callable[[str], tuple[str, float]]
"""Function that returns the language of a text, and its probability."""


def numbers_of(text: str) -> list[str]:
    """Return the numbers of a text, sorted, without what separates digits, in ASCII."""
    found = ("".join(filter(str.isdecimal, number)) for number in _NUMBER.findall(text))
    return sorted("".join(str(unicodedata.decimal(digit)) for digit in one) for one in found)


def addresses_of(text: str) -> list[str]:
    """Return the web and mail addresses of a text, sorted, in lower case."""
    text = text.lower()
    if not any(sign in text for sign in _SIGNS):
        return []
    words = (word.strip(_AROUND).rstrip("/") for word in text.split())
    return sorted(w for w in words if w.startswith(_SCHEMES) or ("@" in w[1:-1]))


@lru_cache(1 << 16)
def _script(letter: str) -> str:
    """Return the first word of a letter's name, which names its script in most cases."""
    return unicodedata.name(letter, "").partition(" ")[0]


def scripts_of(texts: Iterable[str]) -> Counter[str]:
    """Return the number of letters by script."""
    return Counter(_script(letter) for text in texts for letter in text if letter.isalpha())


def usual_scripts(texts: Iterable[str]) -> set[str]:
    """Return the scripts that texts are written in, but for exceptions."""
    counts = scripts_of(texts)
    return {script for script, count in counts.items() if count >= _FEW * counts.total()}


def is_in(scripts: set[str], text: str) -> bool:
    """Return True if at least half of a text's letters are of some scripts."""
    if "LATIN" in scripts and text.isascii():
        return True
    counts = scripts_of([text])
    return 2 * sum(counts[script] for script in scripts) >= counts.total()


def language_identifier() -> Identify | None:
    """Return what identifies languages; None if py3langid is not installed."""
    if find_spec("py3langid") is None:
        return None
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    return lru_cache(1 << 16)(identifier.classify)


def usual_language(identify: Identify, texts: Sequence[str]) -> str:
    """Return the language of most texts."""
    counts = Counter(identify(text)[0] for text in texts if len(text) >= _SHORT)
    return max(counts, key=counts.__getitem__, default="")


def is_language(identify: Identify, language: str, text: str) -> bool:
    """Return False if a text that is not short is surely of another language."""
    if len(text) < _SHORT or not language:
        return True
    found, probability = identify(text)
    return found == language or probability < _SURE
