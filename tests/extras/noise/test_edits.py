"""Words outside of edits keep their links, whatever edits do to others."""

import random

import pytest

from seqattn.data.word_links import WORD, LinkedPair
from seqattn.extras.noise.edits import Edit, edited
from seqattn.extras.noise.kinds import KINDS, Writing, Writings, noised
from tests.growth import SIGNS, grows

WORDS = ["Der", "Hund,", "<2de>", "die-Katze", "x", "3", "é「犬」", "Straße.", "\xa0a", "👍", "…"]


def drawn_pair(draw):
    sides = []
    for _ in range(2):
        words = draw.choices(WORDS, k=draw.randrange(7))
        sides.append("".join(word + draw.choice([" ", "  ", "\t", " "]) for word in words))
        sides[-1] = draw.choice(["", " "]) + sides[-1][: draw.choice([None, -1])]
    counts = [len(WORD.findall(side)) for side in sides]
    every = [(i, j) for i in range(counts[0]) for j in range(counts[1])]
    return LinkedPair(*sides, frozenset(draw.sample(every, draw.randrange(len(every) + 1))))


def drawn_edits(text, draw):
    places = sorted(draw.choices(range(len(text) + 1), k=2 * draw.randrange(4)))
    news = draw.choices(["", " ", "a", "b c", " d ", "\t"], k=len(places) // 2)
    return [Edit(*span, new) for *span, new in zip(places[::2], places[1::2], news)]


def owners(text, edits):
    """The new text, and for each of its words the old words that some of its characters are of."""
    old = [match.span() for match in WORD.finditer(text)]
    of = {place: n for n, span in enumerate(old) for place in range(*span)}
    characters, at = [], 0
    for start, end, new, _ in edits:
        characters += [(text[place], of.get(place)) for place in range(at, start)]
        within = [
            n
            for n, (a, b) in enumerate(old)
            if a <= start and end <= b and (start < end or a < start < b)
        ]
        characters += [(one, next(iter(within), None)) for one in new]
        at = end
    characters += [(text[place], of.get(place)) for place in range(at, len(text))]
    new = "".join(one for one, _ in characters)
    return new, [
        {n for _, n in characters[slice(*match.span())]} - {None} for match in WORD.finditer(new)
    ]


def naive(pair, *edits):
    (source, read), (target, said) = map(owners, pair[:2], edits)
    links = {
        (i, j)
        for i, one in enumerate(read)
        for j, other in enumerate(said)
        if any((s, t) in pair.links for s in one for t in other)
    }
    return LinkedPair(source, target, links)


def test_links_follow_words_through_any_edits():
    draw, changed = random.Random(1), 0
    for _ in range(5000):
        pair = drawn_pair(draw)
        edits = [drawn_edits(text, draw) for text in pair[:2]]
        result = edited(pair, *edits)
        assert result == naive(pair, *edits), (pair, edits)
        assert edited(pair._replace(links=None), *edits) == (*result[:2], None)
        changed += result.links != pair.links
    assert changed > 1000


@pytest.mark.parametrize("kind", KINDS)
def test_words_that_a_kind_leaves_keep_their_links(kind):
    draw, changed = random.Random(kind), 0
    for _ in range(1000):
        pair = drawn_pair(draw)
        writings = Writings(*(Writing.of([text]) for text in pair[:2]))
        edits = KINDS[kind](pair, writings, draw)
        result = edited(pair, *edits)
        assert naive(pair, *edits).links <= result.links
        if kind not in ("tags", "copied"):  # which add links
            assert result == naive(pair, *edits)
        changed += result[:2] != pair[:2]
    assert changed > 20


@pytest.mark.parametrize("sign", [*SIGNS[:4], "犬", "a ", "! ", "a@"])
def test_work_is_linear_in_the_text(sign):
    def noise(text):
        count = len(WORD.findall(text))
        pair = LinkedPair(text, text, {(i, i) for i in range(count)})
        noised(pair, KINDS, Writings(*[Writing.of(["Ab c."])] * 2), random.Random(1))

    assert not grows(noise, sign)
