"""Edits of a pair of texts, and the links between its words after them."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate, chain
from typing import NamedTuple

from seqattn.data.word_links import WORD, LinkedPair


class Edit(NamedTuple):
    """A replacement of the characters from `start` to `end` of a text.

    Linked edits of both sides belong together in their order: their k-th words are linked.
    """

    start: int
    end: int
    text: str
    linked: bool = False


Edits = Sequence[Edit]
"""Edits of a text in its order, which do not overlap."""


def edited(pair: LinkedPair, source: Edits, target: Edits) -> LinkedPair:
    """Return a pair after edits of its sides.

    Words keep their links, also where edits change, split or join them. Those that an edit removes,
    or of which it replaces an end together with text beside it, have none.
    """
    sides = EditedText(pair.source, source), EditedText(pair.target, target)
    if pair.links is None or not (source or target):
        return LinkedPair(sides[0].text, sides[1].text, pair.links)
    new = [[side.words_in(*side.moved(*word)) for word in side.old_words] for side in sides]
    links = {(i, j) for link in pair.links for i in new[0][link[0]] for j in new[1][link[1]]}
    for spans in zip(*(side.linked for side in sides)):
        links.update(zip(*(side.words_in(*span) for side, span in zip(sides, spans, strict=True))))
    return LinkedPair(sides[0].text, sides[1].text, links)


class EditedText:
    """A text before and after edits. Starts and ends are in characters."""

    def __init__(self, text: str, edits: Edits) -> None:
        self._old, self._edits = text, edits
        self._starts, self._ends = [edit.start for edit in edits], [edit.end for edit in edits]
        between = zip([0, *self._ends], [*self._starts, len(text)], strict=True)
        new = zip(
            (text[a:b] for a, b in between), [*(edit.text for edit in edits), ""], strict=True
        )
        self.text = "".join(chain.from_iterable(new))

    @cached_property
    def old_words(self) -> list[tuple[int, int]]:
        """Starts and ends of the words before the edits."""
        return [match.span() for match in WORD.finditer(self._old)]

    @cached_property
    def _words(self) -> tuple[list[int], list[int]]:
        words = [match.span() for match in WORD.finditer(self.text)]
        return [start for start, _ in words], [end for _, end in words]

    @cached_property
    def _shifts(self) -> list[int]:
        """How far text moves that follows each number of edits."""
        growth = (len(edit.text) - edit.end + edit.start for edit in self._edits)
        return [*accumulate(growth, initial=0)]

    @property
    def linked(self) -> list[tuple[int, int]]:
        """Starts and ends of the texts of linked edits."""
        starts = [start + shift for start, shift in zip(self._starts, self._shifts)]
        edits = zip(starts, self._edits, strict=True)
        return [(start, start + len(edit.text)) for start, edit in edits if edit.linked]

    def moved(self, start: int, end: int) -> tuple[int, int]:
        """Return where a part of the old text is; its start is not before its end if nowhere."""
        number = bisect_right(self._ends, start)  # edits that end before the part
        new_start = start + self._shifts[number]
        if number < len(self._starts) and self._starts[number] < start:
            new_start = self._ends[number] + self._shifts[number + 1]
        number = bisect_left(self._starts, end)  # edits that start before its end
        new_end = end + self._shifts[number]
        if number and self._ends[number - 1] > end:
            new_end = self._starts[number - 1] + self._shifts[number - 1]
        return new_start, new_end

    def words_in(self, start: int, end: int) -> range:
        """Return the numbers of the words that overlap with a part of the new text."""
        starts, ends = self._words
        if start >= end:
            return range(0)
        return range(bisect_right(ends, start), bisect_left(starts, end))
