"""A run of text with inline tags and protected parts, put together again by word alignment."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, islice, pairwise
from typing import NamedTuple

from seqattn.extras.align.parts import copies_in, spans
from seqattn.metrics.scripts import in_word, split_words


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


@dataclass(frozen=True, eq=False)
class Word:
    """Units that stay together: a word, a letter of a script without spaces, or a protected part.

    Signs belong to the word before them, or to the one behind if there is none.
    """

    units: list[Unit]

    @cached_property
    def text(self) -> str:
        """Its text."""
        return "".join(unit.text for unit in self.units)

    @cached_property
    def path(self) -> Path:
        """The elements of its letters, or of its signs if it has none."""
        letters = [unit for unit in self.units if any(map(str.isalnum, unit.text))]
        return max((unit.path for unit in letters or self.units), key=len)

    @cached_property
    def kept(self) -> Unit | None:
        """Its protected part."""
        return next((unit for unit in self.units if unit.kept), None)


class Restored(NamedTuple):
    """A segment's output with tags, and the protected parts that could not be placed."""

    text: str
    lost: list[str]


class _Piece(NamedTuple):
    """Units of an output. Args: source: their word; glued: True without a space before them."""

    source: int
    units: list[Unit]
    glued: bool


def _matched(
    output: str, said: Sequence[tuple[int, int, int]], kept: dict[int, Unit]
) -> dict[int, tuple[int, int]]:
    """Return the end and the word of each copy of a protected part, by its begin.

    Of equal parts, the one that the output's part comes from is taken, else the first that is left.
    """
    waiting: dict[str, dict[int, None]] = defaultdict(dict)
    for number in reversed(kept):
        waiting[kept[number].text][number] = None
    ends, found = [end for _, end, _ in said], dict[int, tuple[int, int]]()
    others: list[tuple[int, int, dict[int, None]]] = []
    for begin, end in copies_in(waiting, output):
        own = waiting[output[begin:end]]
        source = said[min(bisect_right(ends, begin), len(ends) - 1)][2]
        if source in own:
            del own[source]
            found[begin] = end, source
        else:
            others.append((begin, end, own))
    return found | {begin: (end, own.popitem()[0]) for begin, end, own in others if own}


def _unspaced(units: Sequence[Unit]) -> bool:
    """Return True if the last letter is of a script without spaces."""
    letters = (letter for unit in reversed(units) for letter in reversed(unit.text))
    letter = next(filter(str.isalnum, letters), "")
    return bool(letter) and not in_word(letter)


@dataclass(frozen=True)
class Segment:
    """A run of text that is generated as one.

    Args:
        units: in order.
        escape: writes text of the model.
        places_all: True to put protected parts that no output word comes from behind the word
            before; else they are lost, unless they touch letters.
    """

    units: Sequence[Unit]
    escape: Callable[[str], str] = str
    places_all: bool = True

    @cached_property
    def _cut(self) -> tuple[list[Word], list[list[Unit]]]:
        """Words, and what is between, before and behind them."""
        words: list[Word] = []
        gaps: list[list[Unit]] = [[]]
        begins = {begin for begin, _ in spans("".join(unit.text for unit in self.units))}
        is_open = kept = letters = False
        place = 0
        for unit in self.units:
            letter = not unit.kept and any(map(str.isalnum, unit.text))
            ends = letters and (unit.kept or (letter and place in begins))
            place += len(unit.text)
            if unit.text.isspace() or not (unit.text or is_open):
                gaps[-1].append(unit)
                is_open = False
                continue
            if not is_open or ends or (kept and (letter or unit.kept)):
                words.append(Word([]))
                gaps.append([])
                is_open, kept, letters = True, False, False
            words[-1].units.append(unit)
            kept, letters = kept or unit.kept, letters or letter
        for number, word in enumerate(words):  # tags behind a word are not part of it
            while not word.units[-1].text:
                gaps[number + 1].insert(0, word.units.pop())
        return words, gaps

    def _glued(self, number: int) -> bool:
        """Return True if no space is before a word."""
        gaps = self._cut[1]
        return 0 < number < len(gaps) - 1 and not any(unit.text for unit in gaps[number])

    @property
    def text(self) -> str:
        """The text that the model reads."""
        words = enumerate(self._cut[0])
        return "".join(" " * (n > 0 and not self._glued(n)) + word.text for n, word in words)

    @cached_property
    def _sources(self) -> list[int]:
        """The word that each part of `text` (see `spans`) stands for.

        Of a word with a protected part inside, that is a word of letters.
        """
        words = self._cut[0]
        owners = (n for n, word in enumerate(words) for _ in "".join(word.text.split()))
        return [
            max(
                dict.fromkeys(islice(owners, len(part))),
                key=lambda number: (words[number].kept is None, len(words[number].path)),
            )
            for part in split_words(self.text)
        ]

    @property
    def linked(self) -> bool:
        """True if its output needs a word alignment."""
        gaps = self._cut[1]
        marked = any(unit.path or unit.kept or unit.raw != unit.text for unit in self.units)
        return marked or any([unit.text for unit in gap] not in ([], [" "]) for gap in gaps[1:-1])

    def links(
        self, source: Sequence[str], target: Sequence[str], links: Sequence[int]
    ) -> list[int]:
        """Return the links of `restored`, of a `WordAlignment` by `parts_of`; none if they are of
        another text."""
        words, best, end = self._cut[0], list[int](), 0
        depths = [len(words[number].path) for number in self._sources]
        for unit in source:
            begin, end = end, end + len(split_words(unit))
            best.append(max(range(begin, min(end, len(depths))), key=depths.__getitem__, default=0))
        fits = end == len(depths)
        return [best[n] for one, n in zip(target, links) for _ in split_words(one)] if fits else []

    def restored(self, output: str, links: Sequence[int]) -> Restored:
        """Return an output with the segment's tags, protected parts and white space.

        Args:
            output: what the model made of `text`.
            links: for each part of it (see `spans`) the number of its part in `text`; without
                links, parts of the same relative position are taken.
        """
        if output == self.text:
            return Restored(_written(self.units), [])
        words, gaps = self._cut
        first, last = ("".join(unit.raw for unit in gap) for gap in (gaps[0], gaps[-1]))
        if not words or not (self.linked or any(u.path for u in (*gaps[0], *gaps[-1]))):
            return Restored(first * bool(words) + self.escape(output) + last, [])
        parts = spans(output)
        if len(links) != len(parts):
            size = len(parts), len(self._sources)
            links = [number * size[1] // size[0] for number in range(size[0])]
        said = [(*part, self._sources[link]) for part, link in zip(parts, links, strict=True)]
        pieces, lost = self._pieces(output, said)
        pieces, left = self._inserted(pieces, lost)
        return Restored(_written(self._placed(pieces)), left)

    def _pieces(
        self, output: str, said: Sequence[tuple[int, int, int]]
    ) -> tuple[list[_Piece], dict[int, Unit]]:
        """Return the pieces of an output, and the protected parts that no word of it comes from.

        A protected part is put where the output has its text, or in place of words that come from
        it alone.

        Args:
            said: begin, end and source word of each part of the output.
        """
        words = self._cut[0]
        kept = {number: word.kept for number, word in enumerate(words) if word.kept is not None}
        copies = _matched(output, said, kept)
        waiting = kept.keys() - {number for _, number in copies.values()}
        pieces, done, run = list[_Piece](), 0, -1

        def add(begin: int, end: int, source: int, units: list[Unit]) -> None:
            if units := [one for one in units if one.raw or one.path]:
                pieces.append(_Piece(source, units, begin > 0 and not output[begin - 1].isspace()))

        for begin, end, source in said:
            starts = [place for place in range(max(begin, done), end) if place in copies]
            replaced = source in waiting and done <= begin and not starts
            for place in (*starts, end):
                begin = max(begin, done)
                if replaced:
                    signs = words[source].text.partition(kept[source].text)[::2]
                    around = [Unit(part, self.escape(part)) for part in signs]
                    add(begin, place, source, [around[0], kept[source], around[1]])
                    waiting.discard(source)
                    run = source
                elif begin < place and run != source:
                    add(begin, place, source, self._units(output[begin:place], words[source]))
                    run = -1
                if place < end:
                    done, number = copies[place]
                    add(place, done, number, [kept[number]])
                    run = -1
        return pieces, {number: kept[number] for number in waiting}

    def _inserted(
        self, pieces: Sequence[_Piece], lost: Mapping[int, Unit]
    ) -> tuple[list[_Piece], list[str]]:
        """Put protected parts behind what comes from the text before them.

        Return all pieces, and the parts that stay lost: those that touch no letters, unless
        `places_all`.
        """
        words, left = self._cut[0], list[str]()
        last = {piece.source: place for place, piece in enumerate(pieces)}
        behind, anchor = defaultdict[int, list[int]](list), -1
        for number in range(len(words)):
            anchor = last.get(number, anchor)
            if number not in lost:
                continue
            if self.places_all or self._glued(number) or self._glued(number + 1):
                behind[anchor].append(number)
            else:
                left.append(lost[number].raw)
        result = list[_Piece]()
        for place in range(-1, len(pieces)):
            source, units, glued = pieces[place] if place >= 0 else (-1, [], False)
            numbers, size = behind.get(place, []), len(units)
            if numbers and units and words[numbers[0] - 1].text[-1].isalnum():
                while size > 1 and not any(map(str.isalnum, units[size - 1].text)):
                    size -= 1  # signs follow
            if place == 0 and result:
                glued = _unspaced(units)
            parts = [(source, units[:size], glued)]
            for number in numbers:
                own = self._glued(number) and not _unspaced(words[number - 1].units)
                kept = [lost[number]]
                if self._glued(number + 1) and number + 1 in lost:  # with the signs between them
                    between = words[number].text.partition(kept[0].text)[2]
                    kept.append(Unit(between, self.escape(between)))
                parts.append((number, kept, own or _unspaced(parts[-1][1])))
            parts.append((source, units[size:], True))
            result += [_Piece(*part) for part in parts if part[1]]
        return result, left

    def _units(self, word: str, source: Word) -> list[Unit]:
        """Return the units of an output word, in the elements of its source word."""
        if word == source.text:
            return source.units
        letters = [place for place, letter in enumerate(word) if letter.isalnum()]
        if not letters:
            return [Unit(word, self.escape(word), () if source.kept else source.path)]
        parts = word[: letters[0]], word[letters[0] : letters[-1] + 1], word[letters[-1] + 1 :]
        edges = source.units[0], source.units[-1]
        paths = [unit.path if not any(map(str.isalnum, unit.text)) else () for unit in edges]
        return [
            Unit(part, self.escape(part), path)
            for part, path in zip(parts, (paths[0], source.path, paths[1]))
            if part
        ]

    def _placed(self, pieces: Sequence[_Piece]) -> Iterator[Unit]:
        """Yield all units of the output: words, what is between them, and tags without a word."""
        words, gaps = self._cut
        last = {piece.source: place for place, piece in enumerate(pieces)}
        first = {piece.source: place for place, piece in reversed([*enumerate(pieces)])}
        extra: dict[int, list[Unit]] = defaultdict(list)
        done = {id(unit) for piece in pieces for unit in piece.units}  # equal ones are not the same
        between: dict[int, list[Unit]] = {}  # before the piece of a place
        ends = [*enumerate(pairwise(pieces), 1)]
        follows = {b.source: place for place, (a, b) in ends if b.source == a.source + 1}
        for place, (one, other) in ends:
            units = gaps[other.source] if follows.get(other.source) == place else []
            if other.glued or not any(unit.text for unit in units):
                units = [unit for unit in units if not unit.text]
                if not other.glued:
                    around = _shared(one.units[-1].path, other.units[0].path)
                    units.insert(0, Unit(" ", " ", around))
            between[place] = units

        def put(gap: int, units: list[Unit]) -> None:
            """Put units behind what comes from the word before a gap, or before the next word."""
            if gap - 1 in last:
                extra[last[gap - 1] + 1] += units
            else:
                extra[first.get(gap, len(pieces))] += units

        for gap in range(1, len(words)):
            if gap not in follows:
                put(gap, [unit for unit in gaps[gap] if not unit.text])
        for source, word in enumerate(words):
            inner = [unit for unit in word.units if not unit.text]
            if inner and id(inner[0]) not in done:
                put(source + 1, inner)
        runs = (gaps[0], gaps[-1], *extra.values(), *between.values(), *(p.units for p in pieces))
        written = {tags for units in runs for unit in units for tags in unit.path}
        inside = [(n, unit) for n, word in enumerate(words) for unit in word.units]
        inside += [(n, unit) for n in range(1, len(words)) for unit in gaps[n]]
        for source, unit in sorted(inside, key=lambda one: -len(one[1].path)):
            if not written.issuperset(unit.path):
                written.update(unit.path)
                put(source, [Unit("", "", unit.path)])
        yield from gaps[0]
        for place, piece in enumerate(pieces):
            yield from extra.get(place, ())
            yield from between.get(place, ())
            yield from piece.units
        yield from extra.get(len(pieces), ())
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
