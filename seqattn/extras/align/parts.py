"""Parts of texts: words, letters of scripts without spaces, and copies of protected parts."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby

from seqattn.analysis.word_alignment import words_of
from seqattn.metrics.scripts import in_word, split_words


def spans(text: str) -> list[tuple[int, int]]:
    """Return begin and end of each part of a text: words, letters of scripts without spaces."""
    found, end = [], 0
    for part in split_words(text):
        begin = text.index(part, end)
        end = begin + len(part)
        found.append((begin, end))
    return found


def parts_of(pieces: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Return words with the indices of their pieces; see `words_of`.

    Words of scripts without spaces are split into parts (see `spans`) that share no piece, and
    signs, which attract attention, are left out.
    """
    found: list[tuple[str, list[int]]] = []
    for word, places in words_of(pieces):
        parts = spans(word)
        if len(parts) < 2:
            found.append((word, places))
            continue
        groups: list[list[int]] = []  # pieces that spell characters together
        for place in places:
            if groups and all(pieces[one].startswith("<0x") for one in (place, groups[-1][-1])):
                groups[-1].append(place)
            else:
                groups.append([place])
        spelt = [words_of([pieces[place] for place in group]) for group in groups]
        owners = [group for group, words in zip(groups, spelt) for text, _ in words for _ in text]
        owned = []
        for begin, end in parts:
            own = [owners[place] for place in range(begin, end) if word[place].isalnum()]
            owned.append((begin, end, own or [owners[begin]]))
        for _, some in groupby(owned, key=lambda one: id(one[2][0])):
            one = [*some]
            each = (place for *_, few in one for group in few for place in group)
            found.append((word[one[0][0] : one[-1][1]], [*dict.fromkeys(each)]))
    return found


def copies_in(texts: Collection[str], output: str) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each place in an output that has one of the texts, longest first.

    A text of letters alone must be a word of its own.
    """
    sizes: dict[str, set[int]] = defaultdict(set)
    for text in texts:
        sizes[text[0]].add(len(text))
    longest_first = {first: sorted(own, reverse=True) for first, own in sizes.items()}
    place = 0
    while place < len(output):
        for size in longest_first.get(output[place], ()):
            text, end = output[place : place + size], place + size
            around = output[place - 1 : place] + output[end : end + 1]
            if text in texts and not (text.isalnum() and any(map(in_word, around))):
                yield place, end
                place = end - 1
                break
        place += 1
