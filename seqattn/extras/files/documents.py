"""Documents of Word (docx): paragraphs whose words keep their formatting."""

import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from html import unescape
from io import BytesIO
from pathlib import Path
from typing import Literal, NamedTuple

from seqattn.errors import UserError
from seqattn.extras.files.codes import ELEMENT
from seqattn.extras.files.formats import (
    LONGEST,
    Edit,
    TranslatedFile,
    Translations,
    edited,
    xml_escaped,
)
from seqattn.extras.files.xml_text import Element, parse_xml
from seqattn.inputs import read_bytes

_PARTS = re.compile(r"word/(?:document|header|footer|footnotes|endnotes)\d{0,9}\.xml")
"""Parts of a document that have the text that people read."""
_LARGEST, _RATIO = 200_000_000, 100  # bytes of all parts, and how many of them for one of the file
_UNREADABLE = (
    zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError,
    ValueError,
)  # fmt: skip
_AROUND = frozenset(("hyperlink", "ins", "smartTag", "sdt", "sdtContent"))
"""Elements around runs whose text is translated."""
_PROPERTIES = frozenset(("pPr", "rPr", "sdtPr", "sdtEndPr"))
_BREAKS = frozenset(("br", "cr", "tab"))
_DROPPED = frozenset(("lastRenderedPageBreak", "proofErr"))
"""Notes of an editor on the words that were."""


class _Token(NamedTuple):
    """A part of a paragraph.

    Args:
        kind: a text; the begin or end of an element around runs; a code, such as a picture; a code
            at which a sentence ends.
        begin, end: its place in the part of the document.
        text: of the text, or how the code is written as a run or element of its own.
        properties: format of the text.
    """

    kind: Literal["text", "begin", "end", "code", "break"]
    begin: int
    end: int
    text: str
    properties: str = ""


class _Runs:
    """Consecutive runs of a paragraph, which are translated together.

    Args:
        tokens: their parts.
        prefix: of the elements, such as "w:".
    """

    def __init__(self, tokens: Sequence[_Token], prefix: str) -> None:
        self.tokens, self.prefix = tokens, prefix
        letters = Counter[str]()
        for one in tokens:
            if one.kind == "text":
                letters[one.properties] += len(one.text)
        self._usual = max(letters, key=letters.__getitem__)

    @property
    def html(self) -> str:
        """The text, in which formats other than the usual one are elements."""
        pieces, properties = list[str](), self._usual
        for number, one in enumerate(self.tokens):
            is_other = one.kind != "text" or one.properties != properties
            if is_other and properties != self._usual:
                pieces.append("</g>")
                properties = self._usual
            if one.kind == "text":
                if one.properties != properties:
                    pieces.append(f'<g id="{number}">')
                    properties = one.properties
                pieces.append(one.text)
            else:
                tags = {
                    "begin": f'<g id="{number}">',
                    "end": "</g>",
                    "break": f'<br id="{number}">',
                }
                pieces.append(tags.get(one.kind, f'<x id="{number}"/>'))
        return "".join([*pieces, "</g>" * (properties != self._usual)])

    def edit(self, output: str) -> Edit:
        """Return the runs of a translation, in the place of these."""
        pieces, opened, place = list[str](), list[_Token](), 0
        ends = self._ends()
        for match in ELEMENT.finditer(output):
            pieces.append(self._run(output[place : match.start()], opened))
            place = match.end()
            if match["one"] is not None:
                pieces.append(self.tokens[int(match["one"])].text)
            elif match["begin"] is not None:
                opened.append(self.tokens[int(match["begin"])])
                pieces.append(opened[-1].text if opened[-1].kind == "begin" else "")
            elif opened:
                pieces.append(ends.get(opened.pop(), ""))
        pieces.append(self._run(output[place:], opened))
        return Edit(self.tokens[0].begin, self.tokens[-1].end, "".join(pieces))

    def _ends(self) -> dict[_Token, str]:
        """Return the end tags of elements around runs."""
        ends, opened = dict[_Token, str](), list[_Token]()
        for one in self.tokens:
            if one.kind == "begin":
                opened.append(one)
            elif one.kind == "end":
                ends[opened.pop()] = one.text
        return ends

    def _run(self, html: str, opened: Sequence[_Token]) -> str:
        """Return a text as a run with the innermost format."""
        if not html:
            return ""
        formats = [one.properties for one in opened if one.kind == "text"]
        properties, p = [self._usual, *formats][-1], self.prefix
        text = xml_escaped(unescape(html))
        return f'<{p}r>{properties}<{p}t xml:space="preserve">{text}</{p}t></{p}r>'


class _Part:
    """A part of a document. Args: name, text: its name and its XML."""

    def __init__(self, name: str, text: str) -> None:
        self.text = text
        self.runs: list[_Runs] = []
        top = parse_xml(text, name)
        for paragraph in top.each("p"):
            tag = re.match(r"<([\w.-]*:?)p\b", text[paragraph.begin : paragraph.inner])
            tokens = list[_Token | None]()  # None where runs cannot be translated together
            self._read(paragraph, tag[1] if tag else "", tokens)
            self._add(tokens, tag[1] if tag else "")

    def _add(self, tokens: Sequence[_Token | None], prefix: str) -> None:
        some = list[_Token]()
        for one in [*tokens, None]:
            if one is not None:
                some.append(one)
                continue
            some = _trimmed(some)
            if any(one.kind == "text" and any(map(str.isalpha, one.text)) for one in some):
                self.runs.append(_Runs(some, prefix))
            some = []

    def _read(self, element: Element, prefix: str, tokens: list[_Token | None]) -> None:
        """Add the parts of a paragraph, or of an element around runs."""
        fields = 0
        for one in element.children:
            raw = self.text[one.begin : one.end]
            fields += sum('fldCharType="begin"' in self._tag(each) for each in one.each("fldChar"))
            ends = sum('fldCharType="end"' in self._tag(each) for each in one.each("fldChar"))
            is_field, fields = fields > 0 or ends > 0, max(0, fields - ends)
            if next(one.each("p"), None) is not None or (is_field and one.name != "r"):
                tokens.append(None)
            elif one.name in _PROPERTIES:
                continue
            elif is_field:
                tokens.append(_Token("code", one.begin, one.end, raw))
            elif one.name == "r":
                self._read_run(one, prefix, tokens)
            elif one.name in _AROUND and next(one.each("t"), None) is not None:
                inside = list[_Token | None]()
                self._read(one, prefix, inside)
                if None in inside:
                    tokens.append(None)
                    continue
                first, last = (inside[0], inside[-1]) if inside else (None, None)
                begin = first.begin if first else one.inner
                end = last.end if last else one.outer
                tokens.append(_Token("begin", one.begin, begin, self.text[one.begin : begin]))
                tokens += inside
                tokens.append(_Token("end", end, one.end, self.text[end : one.end]))
            elif one.name not in _DROPPED:
                tokens.append(_Token("code", one.begin, one.end, raw))

    def _tag(self, element: Element) -> str:
        return self.text[element.begin : element.inner]

    def _read_run(self, run: Element, prefix: str, tokens: list[_Token | None]) -> None:
        found = run.child("rPr")
        properties = self.text[found.begin : found.end] if found else ""
        for one in run.children:
            raw = self.text[one.begin : one.end]
            place = run.begin, run.end
            if one.name == "t":
                inner = self.text[one.inner : one.outer]
                tokens.append(_Token("text", *place, inner, properties))
            elif one.name != "rPr" and one.name not in _DROPPED:
                kind: Literal["break", "code"] = "break" if one.name in _BREAKS else "code"
                whole = f"<{prefix}r>{properties}{raw}</{prefix}r>"
                tokens.append(_Token(kind, *place, whole))


def _trimmed(tokens: Sequence[_Token]) -> list[_Token]:
    """Return the parts without codes at both ends, which stay, but for those in a run of text."""
    first, last = 0, len(tokens)
    while first < last and _is_apart(tokens[first], tokens[first + 1 : first + 2]):
        first += 1
    while first < last and _is_apart(tokens[last - 1], tokens[last - 2 : last - 1]):
        last -= 1
    return [*tokens[first:last]]


def _is_apart(code: _Token, beside: Sequence[_Token]) -> bool:
    """Return True for a code in another run than the part beside it, if there is one."""
    is_code = code.kind in ("code", "break")
    return is_code and all(one.begin != code.begin for one in beside)


class WordDocument(TranslatedFile):
    """A document of Word: its text, headers, footers, tables, boxes, footnotes and endnotes.

    Fields, such as the number of a page, and tracked deletions stay as they are. Parts without
    text, such as pictures, are copied.

    Args:
        path, skip_broken: as `TranslatedFile`.

    Raises:
        UserError: if it is not a document, or unpacks to too much.
    """

    def __init__(self, path: Path, skip_broken: bool = False) -> None:
        super().__init__(path, skip_broken)
        content = read_bytes(path, LONGEST)
        self._parts = dict[str, bytes]()
        try:
            with zipfile.ZipFile(BytesIO(content)) as archive:
                self._infos = archive.infolist()
                total = sum(one.file_size for one in self._infos)
                if total > min(_LARGEST, max(1_000_000, _RATIO * len(content))):
                    raise UserError(f"{path} unpacks to {total:,} bytes, which is too much")
                for one in self._infos:
                    self._parts[one.filename] = archive.read(one)
        except _UNREADABLE as error:
            raise UserError(f"{path} is not a document of Word: {error}") from error
        if "word/document.xml" not in self._parts:
            raise UserError(f"{path} is not a document of Word: it has no word/document.xml")

    @cached_property
    def _read(self) -> dict[str, _Part]:
        parts = {}
        for name, content in self._parts.items():
            if _PARTS.fullmatch(name):
                try:
                    parts[name] = _Part(f"{self.path} ({name})", content.decode("utf-8-sig"))
                except UnicodeDecodeError as error:
                    raise UserError(f"{self.path} ({name}) is not valid UTF-8") from error
        return parts

    def units(self) -> Sequence[str]:
        return [runs.html for part in self._read.values() for runs in part.runs]

    def name(self, number: int) -> str:
        names = [name for name, part in self._read.items() for _ in part.runs]
        return f"{names[number]}, text {number - names.index(names[number]) + 1:,}"

    def written(self, translations: Translations) -> Iterator[bytes]:
        remaining, packed = iter(translations), BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for info in self._infos:
                content = self._parts[info.filename]
                if (part := self._read.get(info.filename)) is not None and part.runs:
                    pairs = [(runs, next(remaining)) for runs in part.runs]
                    edits = (runs.edit(new.html) for runs, new in pairs if new is not None)
                    content = edited(part.text, edits).encode()
                archive.writestr(info, content, info.compress_type)
        yield packed.getvalue()
