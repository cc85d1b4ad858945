"""Generation of texts with tags or placeholders, which are put where their words went."""

import json
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from seqattn.analysis.word_alignment import WordAlignment
from seqattn.data.lines import in_one_line
from seqattn.errors import UserError
from seqattn.extras.align.segment import Restored, Segment, Unit

PLACEHOLDERS = (  # {{x}}, {name}, %(name)s, %s, <name>, links, addresses
    r"\{\{[^{}\n]{0,99}\}\}|\$?\{[\w.:!,]{0,99}\}|%\(\w{1,99}\)[a-z]|%(?:\d\$)?[a-z@]\b"
    r"|<<?\w{1,99}>>?|https?://[^\s<>\"']{0,999}[\w/]|\b[\w.+-]{1,64}@[\w.-]{1,99}\w"
)
"""Bounded, so that no text takes long."""
BREAKS = re.compile(r"(\r\n|\r|\n)")
LONGEST = 200_000
"""Characters of a text with markup."""
_JOINED = "became one line; format=jsonl keeps line breaks"
_REPAIRED = "had tags without their counterpart, which were added or left out"
_SPLIT = "; if the file is one page, name it .html"
Rows = Sequence[tuple[int, str]]
Generate = Callable[[list[str]], list[str]]
Align = Callable[[list[str], list[str]], list[WordAlignment]]


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


@dataclass(frozen=True)
class Markup(ABC):
    """Base class of kinds of markup.

    Args:
        pattern: regular expression of parts that are copied; None for none.

    Raises:
        UserError: for an invalid expression, or one that matches the empty text.
    """

    pattern: str | None = None
    _parts: "re.Pattern[str] | None" = field(default=None, init=False, repr=False, compare=False)
    _said: dict[str, list[int]] = field(default_factory=dict, init=False, repr=False, compare=False)

    pages: ClassVar[Sequence[str]] = ()
    """Suffixes of files that are read as a whole."""

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

    def generate(self, texts: Sequence[str], generate: Generate, align: Align) -> list[str]:
        """Return outputs with markup; print to standard error which protected parts were lost.

        Args:
            texts: with markup.
            generate: returns the outputs of texts without.
            align: aligns the words of texts and outputs.
        """
        return [one.text for one, _ in self._outputs([*enumerate(texts, 1)], generate, align)]

    def lines(self, rows: Rows, generate: Generate, align: Align, form: str) -> Iterator[str]:
        """Yield the outputs of numbered texts as lines; `say` says what became of them.

        Args:
            rows, generate, align: as `generate`.
            form: "line", with spaces for line breaks; "text", as it is; "jsonl", with the text.
        """
        outputs = self._outputs(rows, generate, align)
        for (number, text), (output, document) in zip(rows, outputs, strict=True):
            line = in_one_line(output.text) if form == "line" else output.text
            if line != output.text:
                self._said.setdefault(_JOINED, []).append(number)
            if document.spelling != text:
                self._said.setdefault(_REPAIRED + _SPLIT * (form == "line"), []).append(number)
            if form == "jsonl":
                row: dict[str, object] = {"line": number, "source": text, "output": line}
                row |= {"lost": output.lost} if output.lost else {}
                line = json.dumps(row, ensure_ascii=False)
            yield line

    def say(self) -> None:
        """Print to standard error what became of all `lines`."""
        for what, numbers in self._said.items():
            count = f"{len(numbers):,} output{'s' * (len(numbers) > 1)} (first: {numbers[0]:,})"
            print(f"{count} {what}", file=sys.stderr)

    def _outputs(
        self, rows: Rows, generate: Generate, align: Align
    ) -> list[tuple[Restored, Document]]:
        documents = [self.document(text) for _, text in rows]
        segments = [segment for document in documents for segment in document.segments]
        outputs = generate([segment.text for segment in segments])
        linked = [place for place, segment in enumerate(segments) if segment.linked]
        words = align(
            [segments[place].text for place in linked], [outputs[place] for place in linked]
        )
        links = {place: one.links for place, one in zip(linked, words, strict=True)}
        restored = iter(
            segment.restored(output, links.get(place, ()))
            for place, (segment, output) in enumerate(zip(segments, outputs, strict=True))
        )
        results = []
        for (number, _), document in zip(rows, documents):
            one = document.restored([next(restored) for _ in document.segments])
            results.append((one, document))
            if one.lost:
                more = f" and {len(one.lost) - 5:,} more" if len(one.lost) > 5 else ""
                print(f"text {number:,}: lost {', '.join(one.lost[:5])}{more}", file=sys.stderr)
        return results

    def kept(self, text: str) -> list[Unit]:
        """Return the units of plain text: protected parts, and single characters.

        Raises:
            UserError: if `pattern` matches an empty part.
        """
        units, place = list[Unit](), 0
        for match in self._parts.finditer(text) if self._parts else ():
            if not match[0]:
                raise UserError("markup.pattern must not match the empty text")
            units += [Unit(letter, letter) for letter in text[place : match.start()]]
            units.append(Unit(match[0], match[0], (), True))
            place = match.end()
        return units + [Unit(letter, letter) for letter in text[place:]]

    def check_size(self, text: str) -> None:
        """Raise UserError for a text that is too long."""
        if len(text) > LONGEST:
            raise UserError(
                f"a text with markup may have at most {LONGEST:,} characters, got {len(text):,}; "
                "split it"
            )


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
        rest, units = output, [unit for unit in self.units if unit.kept]
        for unit in units:
            if unit.text not in rest:
                return super().restored(output, links)
            rest = rest.replace(unit.text, " ", 1)
        return Restored(output, [])


class Whole(Line):
    """A text without markup, as it is."""

    linked = False

    def restored(self, output: str, links: Sequence[int]) -> Restored:
        return Restored(self.escape(output), [])
