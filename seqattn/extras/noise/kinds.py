"""Kinds of noise, each as edits of both sides of a pair."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, pairwise
from random import Random
from string import ascii_lowercase, punctuation
from typing import NamedTuple

from seqattn.data.word_links import WORD, LinkedPair
from seqattn.extras.noise.edits import Edit, Edits, edited
from seqattn.metrics.scripts import in_word

_KEYBOARDS = (
    ("qwertyuiop", "asdfghjkl", "zxcvbnm"),
    ("qwertzuiopü", "asdfghjklöä", "yxcvbnm", "ß"),
    ("azertyuiop", "qsdfghjklmù", "wxcvbn", "éèçà"),
    ("йцукенгшщзхъ", "фывапролджэ", "ячсмитьбю"),
    (";ςερτυθιοπ", "ασδφγηξκλ", "ζχψωβνμ"),
)
"""Three rows of keys each, every row half a key to the right of the one above, then letters that
tell a keyboard apart. The first goes before others with as many of a side's letters."""
_ENDS = ".!?…。！？।॥؟۔"  # noqa: RUF001
_AROUND = f"{punctuation}“”„«»‘’¿¡…"  # noqa: RUF001
"""Punctuation around words."""
_INNER = dict.fromkeys(map(ord, "-'’"))  # noqa: RUF001
"""Translation that removes what words have inside."""
_SAMPLED = 1000
"""Texts that show how a side is written, and characters read of each."""
TYPO_SHARE = 0.1
"""Share of a text's words that get a typo, one at least."""
_SORTS = ("neighbor", "lost", "swapped", "split", "doubled", "joined")
"""Sorts of typos; the last needs a word after it."""
_NEXT = re.compile(r" [^\s<>]")
"""Space before another word."""
_UNITS = ("km", "kg", "cm", "m²", "°C", "%", "€", "kWh")
Sides = tuple[Edits, Edits]
"""Edits of the source and of the target."""
NO_EDITS: Sides = ((), ())


@dataclass(frozen=True)
class Writing:
    """How the texts of a side are written.

    Args:
        is_cased: True for letters of two cases.
        is_alphabetic: True for letters of scripts with spaces between words.
        neighbors: the letters beside each letter on its keyboard.
        end: the most frequent mark that ends a text, after a space if words are apart from marks;
            "" for none.
    """

    is_cased: bool
    is_alphabetic: bool
    neighbors: Mapping[str, str]
    end: str

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Writing":
        """Find out from the first texts."""
        sample = [text[-_SAMPLED:].rstrip() for text in islice(texts, _SAMPLED)]
        letters = Counter(sign for text in sample for sign in text.lower() if sign.isalpha())

        def share(chosen: Iterable[str]) -> float:
            return round(sum(letters[letter] for letter in chosen) / max(1, letters.total()), 2)

        ends = Counter(
            f"{' ' * text[:-1].endswith(' ')}{text[-1]}"
            for text in sample
            if text.endswith(tuple(_ENDS))
        )
        return cls(
            share(letter for letter in letters if letter.title() != letter) > 0.5,
            share(filter(in_word, letters)) > 0.5,
            _neighbors(max(_KEYBOARDS, key=lambda rows: share("".join(rows)))[:3]),
            max(ends, key=lambda end: ends[end], default=""),
        )


def _neighbors(rows: tuple[str, ...]) -> dict[str, str]:
    """Return the letters beside each letter of the rows of a keyboard."""
    pairs = [pair for row in rows for pair in pairwise(row)]
    for above, below in pairwise(rows):
        pairs += [*zip(above, below), *zip(above[1:], below)]
    neighbors: dict[str, str] = {}
    for pair in pairs:
        for letter, neighbor in (pair, pair[::-1]):
            neighbors[letter] = neighbors.get(letter, "") + neighbor
    return neighbors


class Writings(NamedTuple):
    """How source and target are written."""

    source: Writing
    target: Writing


def upper(pair: LinkedPair, writings: Writings, random: Random) -> Sides:
    """Put both sides in capital letters, where they have some."""
    return _by_word(pair, writings, str.upper)


def title(pair: LinkedPair, writings: Writings, random: Random) -> Sides:
    """Begin each word of both sides with a capital letter, where they have some."""
    return _by_word(pair, writings, _titled)


def _titled(word: str) -> str:
    for place, character in enumerate(word):
        if character.isalnum():
            return f"{word[:place]}{character.title()}{word[place + 1 :]}"
    return word


def _by_word(pair: LinkedPair, writings: Writings, change: Callable[[str], str]) -> Sides:
    def edits(text: str, writing: Writing) -> Edits:
        words = [match for match in WORD.finditer(text) if not _is_tag(match[0])]
        return [
            Edit(*match.span(), new)
            for match in words
            if writing.is_cased and (new := change(match[0])) != match[0]
        ]

    return edits(pair.source, writings.source), edits(pair.target, writings.target)


def _is_tag(word: str) -> bool:
    """Return True for a symbol such as <2de> or >>de<<, which stays."""
    return word[0] in "<>" and word[-1] in "<>"


def end_punctuation(pair: LinkedPair, writings: Writings, random: Random) -> Sides:
    """Remove the marks at the end of both sides; if neither has some, add some."""
    texts = [text.rstrip() for text in pair[:2]]
    bodies = [text.rstrip(_ENDS).rstrip() for text in texts]
    starts, ends = [*map(len, bodies)], [*map(len, texts)]
    marks = [writing.end for writing in writings]
    if all(0 < start < end for start, end in zip(starts, ends)):
        marks = ["", ""]
    elif starts != ends or not all(marks) or not all(body[-1:].isalnum() for body in bodies):
        return NO_EDITS
    source, target = map(Edit, starts, ends, marks)
    return [source], [target]


def typos(pair: LinkedPair, writings: Writings, random: Random) -> Sides:
    """Mistype some words of the source: a letter beside the right one, doubled, lost or swapped
    letters, and lost or added spaces."""
    text, writing = pair.source, writings.source
    words = [match.span() for match in WORD.finditer(text)]
    cores = [_core(text, *word) for word in words] if writing.is_alphabetic else []
    numbers = [number for number, (start, end) in enumerate(cores) if end - start > 1]
    if not numbers:
        return NO_EDITS
    count = max(1, round(TYPO_SHARE * len(numbers)))
    edits = []
    for number in sorted(random.sample(numbers, count)):
        start, end = cores[number]
        gap = words[number][1]
        sort = random.choice(_SORTS if _NEXT.match(text, gap) else _SORTS[:-1])
        place = random.randrange(start, end - 1)
        letter, following = text[place], text[place + 1]
        neighbors = writing.neighbors.get(letter.lower(), "")
        if sort == "neighbor" and neighbors:
            wrong = random.choice(neighbors)
            edits.append(Edit(place, place + 1, wrong.upper() if letter.isupper() else wrong))
        elif sort == "lost":
            edits.append(Edit(place, place + 1, ""))
        elif sort == "swapped" and (letter + following).isalpha() and letter != following:
            letters = following + letter
            letters = letters.title() if letter.isupper() and following.islower() else letters
            edits.append(Edit(place, place + 2, letters))
        elif sort == "split" and (letter + following).isalpha():
            edits.append(Edit(place + 1, place + 1, " "))
        elif sort == "joined":
            edits.append(Edit(gap, gap + 1, ""))
        else:  # doubled
            edits.append(Edit(place, place, letter))
    return edits, ()


def _core(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the place of a word without the punctuation around it; an empty one of a symbol, or of
    what is not of letters, such as numbers and addresses."""
    word = text[start:end]
    start += len(word) - len(word.lstrip(_AROUND))
    core = word.strip(_AROUND)
    is_word = core.translate(_INNER).isalpha() and not _is_tag(word)
    return (start, start + len(core)) if is_word else (start, start)


def tags(pair: LinkedPair, writings: Writings, random: Random) -> Sides:
    """Put a number, a number with a unit, an emoji or a sign before a word and its link."""
    links = pair.links or ()
    sources, targets = Counter(i for i, _ in links), Counter(j for _, j in links)
    single = sorted((i, j) for i, j in links if sources[i] == targets[j] == 1)
    if not single:
        return NO_EDITS
    i, j = random.choice(single)
    words = [[match.start() for match in WORD.finditer(text)] for text in pair[:2]]
    number = str(random.randrange(1, 10_000))
    signs = chr(0x1F600 + random.randrange(80)), chr(0x2600 + random.randrange(256))
    tag = random.choice([number, f"{number} {random.choice(_UNITS)}", *signs])
    source, target = (Edit(start, start, f"{tag} ", True) for start in (words[0][i], words[1][j]))
    return [source], [target]


def copied(pair: LinkedPair, writings: Writings, random: Random) -> Sides:
    """Replace both sides by the same random words, after tags such as <2de>."""
    lengths = [random.randrange(2, 9) for _ in range(random.randrange(1, 6))]
    text = " ".join("".join(random.choices(ascii_lowercase, k=length)) for length in lengths)
    edits = []
    for side in pair[:2]:
        words = (match for match in WORD.finditer(side) if not _is_tag(match[0]))
        start = next((match.start() for match in words), len(side))
        edits.append([Edit(start, max(start, len(side.rstrip())), text, linked=True)])
    return edits[0], edits[1]


KINDS = {
    "typos": typos,
    "end_punctuation": end_punctuation,
    "title": title,
    "upper": upper,
    "tags": tags,
    "copied": copied,
}
"""Kinds by name, in the order in which a pair gets them."""


def noised(
    pair: LinkedPair, kinds: Iterable[str], writings: Writings, random: Random
) -> LinkedPair:
    """Return a pair with kinds of noise."""
    for name in kinds:
        pair = edited(pair, *KINDS[name](pair, writings, random))
    return pair


def notices(kinds: Iterable[str], writings: Writings, is_linked: bool) -> Iterator[str]:
    """Yield a line for each of some kinds of noise that cannot act on texts."""
    source, target = writings
    sides = [side for side, writing in writings._asdict().items() if not writing.is_cased]
    reasons = {
        "upper": sides and f"on the {' and '.join(sides)}, where case makes no difference",
        "typos": not source.is_alphabetic and "on the source, which has no alphabet",
        "end_punctuation": not (source.end and target.end) and "on texts without final marks",
        "tags": not is_linked and "without links between words (task.alignment.links)",
    }
    reasons["title"] = reasons["upper"]
    for name in kinds:
        if reason := reasons.get(name):
            yield f"{name} does not act {reason}"
