"""Which words say the same: marks that the grammar puts behind words, and the links they make.

A mark names what a word says, such as `subject.noun`. Words of both languages with a mark of one
name are linked, surely unless one of the two marks says that it is only possible.
"""

import re

_BEGIN, _END, _POSSIBLE = "\ue000", "\ue001", "?"
_MARK = re.compile(f"{_BEGIN}([^{_END}]*){_END}")


def marked(word: str, name: str, sure: bool = True) -> str:
    """Put a mark behind a word, beside those that it has; an empty word stays empty."""
    return f"{word}{_BEGIN}{name}{'' if sure else _POSSIBLE}{_END}" if word else ""


def each_marked(text: str) -> str:
    """Number the words of a phrase that is translated word by word, save the article.

    In "in the evening", "am Abend", the word "the" is possibly linked to "am".
    """
    words: list[str] = []
    number = -1
    for word in text.split():
        number += word != "the"
        words.append(marked(word, str(number), sure=word != "the"))
    return " ".join(words)


def under(place: str, text: str) -> str:
    """Put the name of a part of the sentence before all names in its text."""
    return text.replace(_BEGIN, f"{_BEGIN}{place}.")


def names(word: str) -> list[str]:
    """Give the names of a word's marks, as they were put."""
    return [name.strip(_POSSIBLE) for name in _MARK.findall(word)]


def plain(text: str) -> str:
    """Take the marks away."""
    return _MARK.sub("", text)


def links(source: str, target: str) -> str:
    """Write the links of two marked texts: `0-1` a sure one, `0p1` a possible one, words from 0."""
    found = []
    sides = [[set(_MARK.findall(word)) for word in text.split()] for text in (source, target)]
    for i, ours in enumerate(sides[0]):
        for j, theirs in enumerate(sides[1]):
            if {name for name in ours & theirs if not name.endswith(_POSSIBLE)}:
                found.append(f"{i}-{j}")
            elif {name.strip(_POSSIBLE) for name in ours} & {n.strip(_POSSIBLE) for n in theirs}:
                found.append(f"{i}p{j}")
    return " ".join(found)
