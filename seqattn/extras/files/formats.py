"""Files of several texts: what to translate in one, and the file with translations in its place."""

import codecs
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
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


class TranslatedFile(ABC):
    """A file whose texts are translated."""

    @abstractmethod
    def units(self) -> Sequence[str]:
        """Return the texts to translate, as HTML, in the order of the file."""

    @abstractmethod
    def written(self, outputs: Iterable[str]) -> Iterator[bytes]:
        """Yield the content of the file with the outputs of its units, as HTML, in their place."""


class TextFile(TranslatedFile):
    """A file that is text.

    Args:
        path: the file.

    Raises:
        UserError: if it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        content = read_bytes(path, LONGEST)
        self.path = path
        self.encoding = _MARKS.get(content[:2], "utf-8")
        try:
            self.text = content.decode(self.encoding)  # with the byte order mark
        except UnicodeDecodeError as error:
            where = f"byte {error.start:,}"
            raise UserError(f"{path} is not valid UTF-8 at {where}; convert it to UTF-8") from error

    @abstractmethod
    def edits(self, outputs: Sequence[str]) -> Iterable[Edit]:
        """Yield what changes in the file's text, in its order. Args: outputs: of the units."""

    def written(self, outputs: Iterable[str]) -> Iterator[bytes]:
        yield edited(self.text, self.edits([*outputs])).encode(self.encoding)


def edited(text: str, edits: Iterable[Edit]) -> str:
    """Return a text with edits of different parts, in its order."""
    pieces, place = list[str](), 0
    for edit in edits:
        pieces += [text[place : edit.begin], edit.text]
        place = edit.end
    return "".join([*pieces, text[place:]])


def xml_escaped(text: str) -> str:
    """Return a text as XML has it."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
