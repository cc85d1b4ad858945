"""Generation of texts with tags or placeholders, which are put where their words went."""

import re
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar, NamedTuple

from seqattn.analysis.word_alignment import WordAlignment
from seqattn.bundle.text_options import Align, Note, OutputOf, SegmentOutput, TextOption
from seqattn.errors import UserError
from seqattn.extras.align.parts import copies_in, parts_of
from seqattn.extras.align.segment import Restored, Segment, Unit

_INNER = r"[^{}\n]"
for _ in range(4):
    _INNER = rf"(?:[^{{}}\n]|\{{{_INNER}{{0,999}}+\}})"
_SIZE = r"(?:\d{1,4}|\*(?:\d{1,2}\$)?)"
_SIZES = rf"(?:{_SIZE}(?:\.{_SIZE}?)?|\.{_SIZE}?)"
_FLAGS, _TYPE = "[-+#0,']{0,4}", "(?:hh|ll|[hlLqjzt]|I32|I64)?[diouxXeEfFgGaAcCsSpnbBhH@]"
PLACEHOLDERS = "|".join((
    r"\{\{\{?[^{}\n]{0,99}\}?\}\}|\{%[^{}\n]{0,99}%\}|<%[^%\n]{0,99}%>",  # {{x}} {% x %} <%= x %>
    rf"\{{ ?[\w.-]{{1,99}} ?, ?[a-z]{{2,20}} ?,{_INNER}{{0,999}}+\}}",  # {n, plural, other {#}}
    r"[#$]\{[^{}\n]{1,99}\}|\$t\([^()\n]{1,99}\)|@(?:\.\w{1,20})?:\w[\w.]{0,99}\b",  # ${x} $t(x)
    r"%?\{ ?[\w.$@()\[\]'\"-]{0,99} ?(?:[!:|,][^{}\n]{0,99})?\}",  # {x} %{x} {0:>9} {d, date}
    rf"%%|%\([^()\s]{{1,99}}\){_FLAGS}{_SIZES}?{_TYPE}",  # %(x).2f
    rf"%<\w{{1,99}}>(?:{_FLAGS}{_SIZES}?{_TYPE}(?![A-Za-z]))?",  # %<x>d
    rf"(?<!\d)%\d{{1,2}}\${_FLAGS}{_SIZES}?(?:[tT][A-Za-z]|{_TYPE})",  # %1$s
    rf"(?<!\d)%<?{_FLAGS}{_SIZES}{_TYPE}(?![A-Za-z]{{4}})",  # %5d
    r"(?<!\d)%L?\d{1,2}(?![\w%$])|(?<!\d)%d(?![A-Za-z]{4}|[A-Za-z]{1,3}%(?![A-Za-z]))",  # %1 %dpx
    rf"(?<!\d)%<?{_FLAGS}(?:@|(?:{_TYPE}|[tT]?[A-Za-z])(?![A-Za-z>]))",  # %s %ld %@ %tY
    r"(?<!\d)%[A-Za-z]\w{0,98}%(?![\w%])",  # %name%
    r"</?\w[\w.:-]{0,99} ?/?>|<<\w{1,99}>>|<\w[\w:]{0,20}\s[^<>\n]{0,499}[\"'/]>",  # <x> <x y="z">
    r"https?://[^\s<>\"']{0,999}[\w/]|\b[\w.+-]{1,64}@[\w.-]{1,99}\w",
    r"(?<![\w$])\$[A-Za-z_]\w{0,99}|(?<!\w)__[A-Za-z]\w{0,99}|(?<!\S):[A-Za-z_]\w{1,99}",
))  # fmt: skip
"""Placeholders of printf, Objective-C, Java, Python, Ruby, ICU and templates; links, addresses.

Bounded, so that no text takes long. A % behind a digit is a percent sign, unless another follows.
"""
_ALIKE = re.compile(r"%[^\s%]{0,5}?[A-Za-z]\w{0,20}|\{[^{}\n]{0,20}\}?")
BREAKS = re.compile(r"(\r\n|\r|\n)")
LONGEST = 200_000
"""Characters of a text with markup."""
_REPAIRED = "had tags without their counterpart, which were added or left out"
_PAGE = "; a page is one text, as files named .html are read"


class Document(NamedTuple):
    """A text as segments to generate, and what stays as it is between them."""

    parts: list[Segment | str]

    @property
    def segments(self) -> list[Segment]:
        """Segments with words."""
        return [part for part in self.parts if isinstance(part, Segment) and part.text]

    @property
    def spelling(self) -> str:
        """The text; its tags may have been repaired."""
        return self.restored([one.restored(one.text, ()) for one in self.segments]).text

    @property
    def texts(self) -> list[str]:
        """What the model reads of each segment."""
        return [segment.text for segment in self.segments]

    def restored(self, outputs: Sequence[Restored]) -> Restored:
        """Return the text with the outputs of its segments."""
        rest, text, lost = iter(outputs), [], list[str]()
        for part in self.parts:
            if isinstance(part, str):
                text.append(part)
                continue
            one = next(rest) if part.text else part.restored("", [])
            text.append(one.text)
            lost += one.lost
        return Restored("".join(text), lost)


class Marked(NamedTuple):
    """An output with markup, the protected parts that it lost, and its text."""

    text: str
    lost: list[str]
    document: Document


@dataclass(frozen=True)
class Markup(TextOption, ABC):
    """Base class of kinds of markup.

    Args:
        pattern: regular expression of parts that are copied; None for none.

    Raises:
        UserError: for an invalid expression, or one that matches the empty text.
    """

    pattern: str | None = None
    splits: ClassVar[bool] = True
    words_by: ClassVar[Any] = staticmethod(parts_of)
    _parts: "re.Pattern[str] | None" = field(default=None, init=False, repr=False, compare=False)
    _repaired: list[int] = field(default_factory=list, init=False, repr=False, compare=False)
    _lost: list[tuple[int, list[str]]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )
    _told: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.pattern is None:
            return
        try:
            parts = re.compile(self.pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise UserError(f"markup.pattern is not a regular expression: {error}") from error
        object.__setattr__(self, "_parts", parts)
        for text in ("", "a b."):
            self.kept(text)

    @abstractmethod
    def document(self, text: str) -> Document:
        """Parse a text.

        Raises:
            UserError: if it is too long, or nests too deeply.
        """

    def of(self, bundle: Any) -> "Markup":
        """Return the markup with no outputs counted."""
        markup = copy(self)
        for name, value in (("_repaired", []), ("_lost", []), ("_told", set())):
            object.__setattr__(markup, name, value)
        return markup

    def split(self, texts: Sequence[str]) -> list[Document]:
        return [self.document(text) for text in texts]

    def restore(
        self, outputs: Sequence[tuple[Document, Sequence[SegmentOutput]]], align: Align
    ) -> list[Marked]:
        pairs = [
            (segment, output)
            for document, each in outputs
            for segment, output in zip(document.segments, each, strict=True)
        ]
        linked = (output for segment, output in pairs if segment.linked)
        lines = [line for output in linked for line in output.lines if not line.is_copy]
        words = iter(align([one.line for one in lines], [one.output for one in lines]))

        def links(segment: Segment, output: SegmentOutput) -> Sequence[int]:
            if not segment.linked:
                return ()
            parts = (
                WordAlignment.of_copy(one.line) if one.is_copy else next(words)
                for one in output.lines
            )
            return segment.links(*WordAlignment.joined([*parts]))

        restored = (one.restored(output.output, links(one, output)) for one, output in pairs)
        results = []
        for document, each in outputs:
            text, lost = document.restored([*islice(restored, len(each))])
            results.append(Marked(text, lost, document))
        return results

    def note(self, output: OutputOf) -> Note:
        """Return the protected parts that an output lost."""
        marked: Marked = output.restored
        if output.is_best and marked.lost:
            self._lost.append((output.number, marked.lost))
        if output.is_best and marked.document.spelling != output.raw:
            self._repaired.append(output.number)
        return Note({"lost": marked.lost} if marked.lost else {})

    def say(self) -> None:
        if numbers := self._repaired:
            count = f"{len(numbers):,} output{'s' * (len(numbers) > 1)} (first: {numbers[0]:,})"
            print(f"{count} {_REPAIRED}{_PAGE * (numbers[-1] > 1)}", file=sys.stderr)
        _say_lost(self._lost)

    def tell_once(self, notice: str) -> None:
        """Print a notice to standard error, unless it was printed before."""
        if notice not in self._told:
            print(notice, file=sys.stderr)
        self._told.add(notice)

    def kept(self, text: str) -> list[Unit]:
        """Return the units of plain text: protected parts, and single characters.

        Raises:
            UserError: if `pattern` matches an empty part.
        """
        units, place = list[Unit](), 0
        for match in self._parts.finditer(text) if self._parts else ():
            if not match[0]:
                raise UserError("markup.pattern must not match the empty text")
            part = match[0].strip()
            begin = match.start() + match[0].index(part)
            units += [Unit(letter, letter) for letter in text[place:begin]]
            units += [Unit(part, part, (), True)] * bool(part)
            place = begin + len(part)
        return units + [Unit(letter, letter) for letter in text[place:]]

    def check_size(self, text: str) -> None:
        """Raise UserError for a text that is too long."""
        if len(text) > LONGEST:
            raise UserError(
                f"a text with markup may have at most {LONGEST:,} characters, got {len(text):,}; "
                "split it"
            )


def _say_lost(texts: Sequence[tuple[int, list[str]]]) -> None:
    """Print which protected parts were lost. Args: texts: their numbers, and the parts of each."""
    if not texts:
        return
    number, lost = texts[0]
    more = f" and {len(lost) - 5:,} more" if len(lost) > 5 else ""
    several = f"{len(texts):,} texts lost protected parts, which format=jsonl lists: "
    first = f"text {number:,}: lost {', '.join(lost[:5])}{more}"
    print(several * (len(texts) > 1) + first, file=sys.stderr)


@dataclass(frozen=True)
class Placeholders(Markup):
    """Plain text with placeholders, each line by itself.

    Args:
        pattern: as `Markup`; None for `PLACEHOLDERS`.
    """

    def __post_init__(self) -> None:
        if self.pattern is None:
            object.__setattr__(self, "pattern", PLACEHOLDERS)
        super().__post_init__()

    def split(self, texts: Sequence[str]) -> list[Document]:
        if self._parts is not None and self.pattern == PLACEHOLDERS and not self._told:
            rests = (self._parts.sub("\n", text) for text in texts)
            if alike := next(filter(None, map(_ALIKE.search, rests)), None):
                what = f"some parts look like placeholders but are read as text, such as {alike[0]}"
                self.tell_once(f"{what}; set markup.pattern to copy them")
        return super().split(texts)

    def document(self, text: str) -> Document:
        self.check_size(text)
        if self._parts is None or not self._parts.search(text):
            return Document([Whole([Unit(text, text)])])
        lines = enumerate(BREAKS.split(text))
        return Document(
            [line if odd % 2 else Line(self.kept(line), places_all=False) for odd, line in lines]
        )


class Line(Segment):
    """A line with placeholders, unchanged where the model copies them."""

    @property
    def text(self) -> str:
        return "".join(unit.text for unit in self.units)

    def restored(self, output: str, links: Sequence[int]) -> Restored:
        kept = Counter(unit.text for unit in self.units if unit.kept)
        copies = Counter(output[begin:end] for begin, end in copies_in(kept, output))
        return Restored(output, []) if kept <= copies else super().restored(output, links)


class Whole(Line):
    """A text without markup, as it is."""

    linked = False

    def restored(self, output: str, links: Sequence[int]) -> Restored:
        return Restored(self.escape(output), [])
