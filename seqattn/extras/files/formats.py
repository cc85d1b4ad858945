"""Files of several texts: what to translate in one, and the file with translations in its place."""

import codecs
import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from seqattn.errors import UserError
from seqattn.inputs import read_bytes

LONGEST = 50_000_000  # bytes of a file that is read as a whole
_MARKS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}

LINE = re.compile(r"([^\r\n]*)(?:\r\n|\r|\n|\Z)")
"""A line, and its end."""


class Edit(NamedTuple):
    """A new text in place of a part of a file's text."""

    begin: int
    end: int
    text: str


class Translation(NamedTuple):
    """What is written for a unit: its output as HTML, and notes on it, which are plain lines."""

    html: str
    notes: Sequence[str] = ()


Translations = Sequence[Translation | None]
"""Those of all units; None for one that stays as it is."""


class BrokenUnit(UserError):
    """Error of a unit that cannot be read, where the others of its file can."""


class TranslatedFile(ABC):
    """A file whose texts are translated.

    Args:
        path: the file.
        skip_broken: True to leave units that cannot be read as they are.

    Attributes:
        broken: what is wrong with these.
    """

    def __init__(self, path: Path, skip_broken: bool = False) -> None:
        self.path, self.skip_broken = path, skip_broken
        self.broken: list[str] = []

    def leave(self, where: str, fault: str) -> None:
        """Note that a unit stays as it is. Raises: BrokenUnit if it must not be skipped."""
        if not self.skip_broken:
            raise BrokenUnit(f"{self.path}, {where}: {fault}")
        self.broken.append(f"{where}: {fault}")

    @abstractmethod
    def units(self) -> Sequence[str]:
        """Return the texts to translate, as HTML, in the order of the file."""

    @abstractmethod
    def name(self, number: int) -> str:
        """Return what people find a unit by. Args: number: its index in `units`."""

    @abstractmethod
    def written(self, translations: Translations) -> Iterator[bytes]:
        """Yield the content of the file with translations of its units in their place."""


class TextFile(TranslatedFile):
    """A file that is text.

    Args:
        path, skip_broken: as `TranslatedFile`.

    Raises:
        UserError: if it cannot be read.
    """

    def __init__(self, path: Path, skip_broken: bool = False) -> None:
        super().__init__(path, skip_broken)
        content = read_bytes(path, LONGEST)
        self.encoding = _MARKS.get(content[:2], "utf-8")
        try:
            self.text = content.decode(self.encoding)  # with the byte order mark
        except UnicodeDecodeError as error:
            where = f"byte {error.start:,}"
            raise UserError(f"{path} is not valid UTF-8 at {where}; convert it to UTF-8") from error

    @abstractmethod
    def edits(self, translations: Translations) -> Iterable[Edit]:
        """Yield what changes in the file's text."""

    def written(self, translations: Translations) -> Iterator[bytes]:
        yield edited(self.text, self.edits(translations)).encode(self.encoding)

    def line(self, place: int) -> str:
        """Return what people find a place in the text by."""
        return f"line {bisect_right(self._line_starts, place):,}"

    @cached_property
    def end(self) -> str:
        """How its lines end."""
        return "\r\n" if "\r\n" in self.text else "\n"

    @cached_property
    def _line_starts(self) -> list[int]:
        """Where lines begin."""
        return [match.start() for match in LINE.finditer(self.text)]


def edited(text: str, edits: Iterable[Edit]) -> str:
    """Return a text with edits of different parts; those of one place in their order."""
    pieces, place = list[str](), 0
    for edit in sorted(edits, key=lambda edit: (edit.begin, edit.end)):
        pieces += [text[place : edit.begin], edit.text]
        place = edit.end
    return "".join([*pieces, text[place:]])


def xml_escaped(text: str) -> str:
    """Return a text as XML has it."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
