"""A run of text with inline tags and protected parts, put together again by word alignment."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, groupby, pairwise
from typing import NamedTuple


@dataclass(frozen=True, eq=False)
class Tags:
    """Start and end tag of an inline element, as they are written."""

    start: str
    end: str


Path = tuple[Tags, ...]
"""The elements around a unit, outermost first."""


class Unit(NamedTuple):
    """A part of a segment that stays together.

    Args:
        text: what the model reads: a character, or all of a protected part; "" for a tag without
            text, such as an image.
        raw: how it is written.
        path: its elements.
        kept: True for a protected part.
    """

    text: str
    raw: str
    path: Path = ()
    kept: bool = False


class Word(NamedTuple):
    """Units without white space between them."""

    units: list[Unit]

    @property
    def text(self) -> str:
        return "".join(unit.text for unit in self.units)

    @property
    def path(self) -> Path:
        """The elements of its letters, or of its signs if it has none."""
        letters = [unit for unit in self.units if any(map(str.isalnum, unit.text))]
        return max((unit.path for unit in letters or self.units), key=len)

    @property
    def kept(self) -> Unit | None:
        """Its protected part, several as one."""
        places = [place for place, unit in enumerate(self.units) if unit.kept]
        if not places:
            return None
        part = self.units[places[0] : places[-1] + 1]
        text, raw = ("".join(one) for one in zip(*((u.text, u.raw) for u in part), strict=True))
        return Unit(text, raw, part[0].path, True)


class Restored(NamedTuple):
    """A segment's output with tags, and the protected parts that could not be placed."""

    text: str
    lost: list[str]


class _Output:
    """The words that a model made, to be searched for protected parts."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words
        self.text = " ".join(words)
        self.starts = [0, *accumulate(len(word) + 1 for word in words)]
        self.searched: dict[str, int] = {}

    def has(self, part: str, place: int, size: int) -> bool:
        """Return True if a part stands in `size` words from one on."""
        return part in " ".join(self.words[place : place + size])

    def places(self, part: str) -> Iterator[int]:
        """Yield the words where a part begins, from the last one that was yielded for it on.

        So parts that stand in a text many times are found in linear time; those before it are
        taken.
        """
        begin = self.searched.get(part, 0)
        while (begin := self.text.find(part, begin)) >= 0:
            self.searched[part] = begin
            yield bisect_right(self.starts, begin) - 1
            begin += 1


@dataclass(frozen=True)
class Segment:
    """A run of text that is generated as one.

    Args:
        units: in order.
        escape: writes text of the model.
        places_all: True to put protected parts that no output word comes from behind the word
            before; else they are lost.
    """

    units: Sequence[Unit]
    escape: Callable[[str], str] = str
    places_all: bool = True

    @cached_property
    def _cut(self) -> tuple[list[Word], list[list[Unit]]]:
        """Words, and what is between, before and behind them."""
        words: list[Word] = []
        gaps: list[list[Unit]] = [[]]
        is_open = False
        for unit in self.units:
            if unit.text.isspace() or (not unit.text and not is_open):
                gaps[-1].append(unit)
                is_open = False
            elif is_open:
                words[-1].units.append(unit)
            else:
                words.append(Word([unit]))
                gaps.append([])
                is_open = True
        for number, word in enumerate(words):  # tags behind a word are not part of it
            while not word.units[-1].text:
                gaps[number + 1].insert(0, word.units.pop())
        return words, gaps

    @property
    def text(self) -> str:
        """The text that the model reads."""
        return " ".join(word.text for word in self._cut[0])

    @property
    def linked(self) -> bool:
        """True if its output needs a word alignment."""
        gaps = self._cut[1]
        marked = any(unit.path or unit.kept or unit.raw != unit.text for unit in self.units)
        return marked or any([unit.text for unit in gap] != [" "] for gap in gaps[1:-1])

    def restored(self, output: str, links: Sequence[int]) -> Restored:
        """Return an output with the segment's tags, protected parts and white space.

        Args:
            output: what the model made of `text`.
            links: for each word of it the number of its word in `text`; without links, words of
                the same relative position are taken.
        """
        if output == self.text:
            return Restored(_written(self.units), [])
        words, gaps = self._cut
        first, last = ("".join(unit.raw for unit in gap) for gap in (gaps[0], gaps[-1]))
        if not words or not (self.linked or any(u.path for u in (*gaps[0], *gaps[-1]))):
            return Restored(first * bool(words) + self.escape(output) + last, [])
        said = output.split()
        if len(links) != len(said):
            size = len(said), len(self.text.split())
            links = [number * size[1] // size[0] for number in range(size[0])]
        numbers = [n for n, word in enumerate(words) for _ in word.text.split()]
        pieces, lost = self._pieces(said, [numbers[link] for link in links])
        return Restored(
            _written(self._placed(pieces, lost)),
            [] if self.places_all else [unit.raw for _, unit in lost],
        )

    def _pieces(
        self, said: Sequence[str], sources: Sequence[int]
    ) -> tuple[list[tuple[int, list[Unit]]], list[tuple[int, Unit]]]:
        """Return the units of each output word with its source word, and parts not placed."""
        words = self._cut[0]
        merged: dict[int, tuple[int, int, list[Unit]]] = {}  # first word: end, source, units
        taken: set[int] = set()
        lost = []
        placed = defaultdict(list)
        for place, source in enumerate(sources):
            placed[source].append(place)
        words_said = _Output(said)
        for number, word in enumerate(words):
            kept = word.kept
            if kept is None:
                continue
            span = self._span(kept, words_said, placed[number], taken)
            if span is None:
                lost.append((number, kept))
                continue
            begin, end = span
            taken.update(range(begin, end))
            text = " ".join(said[begin:end])
            before, found, behind = text.partition(kept.text)
            if not found:  # signs around it as in the source
                before, _, behind = word.text.partition(kept.text)
            around = [Unit(part, self.escape(part), word.path[:0]) for part in (before, behind)]
            merged[begin] = end, number, [around[0], kept, around[1]]
        pieces, place = [], 0
        while place < len(said):
            source = sources[place]
            if place in merged:
                place, source, units = merged[place]
            else:
                units = self._units(said[place], words[source])
                place += 1
            pieces.append((source, [unit for unit in units if unit.raw or unit.path]))
        return pieces, lost

    @staticmethod
    def _span(
        kept: Unit, output: "_Output", mine: Sequence[int], taken: set[int]
    ) -> tuple[int, int] | None:
        """Return the output words of a protected part: its own text, or what comes from it."""
        size = len(kept.text.split())
        for place in chain(mine, output.places(kept.text)):
            if taken.isdisjoint(range(place, place + size)) and output.has(kept.text, place, size):
                return place, place + size
        run: list[int] = []
        for place in mine:
            if place not in taken and (not run or place == run[-1] + 1):
                run.append(place)
        return (run[0], run[-1] + 1) if run else None

    def _units(self, word: str, source: Word) -> list[Unit]:
        """Return the units of an output word, in the elements of its source word."""
        if word == source.text:
            return source.units
        letters = [place for place, letter in enumerate(word) if letter.isalnum()]
        if not letters:
            return [Unit(word, self.escape(word), source.path)]
        parts = word[: letters[0]], word[letters[0] : letters[-1] + 1], word[letters[-1] + 1 :]
        edges = source.units[0], source.units[-1]
        paths = [unit.path if not any(map(str.isalnum, unit.text)) else () for unit in edges]
        return [
            Unit(part, self.escape(part), path)
            for part, path in zip(parts, (paths[0], source.path, paths[1]))
            if part
        ]

    def _placed(
        self, pieces: Sequence[tuple[int, list[Unit]]], lost: Sequence[tuple[int, Unit]]
    ) -> Iterator[Unit]:
        """Yield all units of the output: words, what is between them, and tags without a word."""
        words, gaps = self._cut
        places: dict[int, list[int]] = defaultdict(list)
        for place, (source, _) in enumerate(pieces):
            places[source].append(place)
        follows = {
            source + 1: place + 1
            for place, ((source, _), (other, _)) in enumerate(pairwise(pieces))
            if other == source + 1
        }
        extra: dict[int, list[Unit]] = defaultdict(list)
        done = {id(unit) for _, units in pieces for unit in units}  # equal ones are not the same

        def put(gap: int, units: list[Unit]) -> None:
            """Put units behind what comes from the word before a gap, or before the next word."""
            if places[gap - 1]:
                extra[places[gap - 1][-1] + 1] += units
            else:
                extra[places[gap][0] if places[gap] else len(pieces)] += units

        for gap in range(1, len(words)):
            if gap not in follows:
                put(gap, [unit for unit in gaps[gap] if not unit.text])
        for source, word in enumerate(words):
            inner = [unit for unit in word.units if not unit.text]
            if inner and id(inner[0]) not in done:
                put(source + 1, inner)
        if self.places_all:
            for source, unit in lost:
                put(source + 1, [Unit(" ", " "), unit])
        written = {tags for _, units in pieces for unit in units for tags in unit.path}
        written |= {
            t for units in (gaps[0], gaps[-1], *extra.values()) for u in units for t in u.path
        }
        written |= {t for gap in follows for unit in gaps[gap] for t in unit.path}
        inside = [(n, unit) for n, word in enumerate(words) for unit in word.units]
        inside += [(n, unit) for n in range(1, len(words)) for unit in gaps[n]]
        for source, unit in sorted(inside, key=lambda one: -len(one[1].path)):
            if not written.issuperset(unit.path):
                written.update(unit.path)
                put(source, [Unit("", "", unit.path)])
        used = {place: gap for gap, place in follows.items()}
        yield from gaps[0]
        for place, (_, units) in enumerate(pieces):
            yield from extra[place]
            if place in used:
                yield from gaps[used[place]]
            elif place:
                before = (pieces[place - 1][1] or units)[-1].path
                yield Unit(" ", " ", _shared(before, units[0].path if units else ()))
            yield from units
        yield from extra[len(pieces)]
        yield from gaps[-1]


def _shared(one: Path, other: Path) -> Path:
    """Return the elements that two paths begin with."""
    size = 0
    while size < min(len(one), len(other)) and one[size] is other[size]:
        size += 1
    return one[:size]


def _written(units: Iterable[Unit]) -> str:
    """Return units as text with their tags, each element around neighbors that share it."""
    parts: list[str] = []
    path: Path = ()
    for around, some in groupby(units, key=lambda unit: unit.path):
        size = len(_shared(path, around))
        parts += [tags.end for tags in path[size:][::-1]] + [tags.start for tags in around[size:]]
        parts += [unit.raw for unit in some]
        path = around
    return "".join([*parts, *(tags.end for tags in path[::-1])])
