"""HTML as segments: blocks split, inline tags are put around what their words became."""

import pathlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape, unescape
from typing import ClassVar

from seqattn.data.text_lines import INVISIBLE
from seqattn.errors import UserError
from seqattn.extras.align.html_tree import (
    ATTRIBUTE,
    Node,
    attributes_of,
    escaped,
    keeps_page,
    references,
    tokens_of,
    tree_of,
)
from seqattn.extras.align.markup import BREAKS, Document, Markup, Whole
from seqattn.extras.align.segment import Path, Restored, Segment, Tags, Unit
from seqattn.inputs import read_bytes
from seqattn.metrics.scripts import in_word

_WITHIN = frozenset((
    "", "abbr", "acronym", "b", "bdi", "bdo", "big", "blink", "cite", "code", "data", "del", "dfn",
    "em", "font", "i", "ins", "kbd", "mark", "nobr", "rb", "rp", "rt", "rtc", "ruby", "s", "samp",
    "small", "span", "strike", "strong", "time", "tt", "u", "var", "wbr",
))  # fmt: skip
"""Inline elements, and comments, that may stand within a word; others end it."""
_CLOSING, _OPENING = frozenset(".,;:!?…)]}»”*†‡"), frozenset("([{«“¿¡*†‡")
"""Signs that end and begin words at the edge of an element."""
_INVISIBLE = re.compile(f"[{INVISIBLE}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Signs of hyphenation, breaks and directions; joiners are part of Persian, Hindi and emoji."""
_READ = frozenset(("alt", "aria-label", "placeholder", "title"))
"""Attributes that people read, as is the value of a button."""
_BUTTONS = frozenset(("button", "reset", "submit"))
_CHARSET = re.compile(
    rb"(?i)<(?:meta|\?xml)\b[^>]{0,999}?\b(?:charset|encoding)\s{0,9}=[\s\"']{0,9}([\w-]+)"
)
_LONGEST, _HEAD = 1_000_000, 8_192  # bytes of a file, and of the part that declares a charset
_SLOT = re.compile("\0(\\d+)\0")
"""Where a translated attribute is written."""


class _Page(Document):
    """A document whose first segments are attributes."""

    def restored(self, outputs: Sequence[Restored]) -> Restored:
        rest = [part for part in self.parts if not isinstance(part, _Value)]
        size = len(self.parts) - len(rest)
        text, lost = Document(rest).restored(outputs[size:])
        lost = [*(part for one in outputs[:size] for part in one.lost), *lost]
        return Restored(_SLOT.sub(lambda slot: outputs[int(slot[1])].text, text), lost)


@dataclass(frozen=True, eq=False)
class _Value(Segment):
    """The value of an attribute. Args: is_bare: True for one without quotes."""

    is_bare: bool = False

    def restored(self, output: str, links: Sequence[int]) -> Restored:
        text, lost = super().restored(output, links)
        return Restored(f'"{text}"' if self.is_bare and output != self.text else text, lost)


@dataclass(frozen=True)
class Html(Markup):
    """HTML; output is well-formed where the input is, and else repaired.

    Entities and white space stay. Block elements and br split; code, pre, script, style, comments
    and what is marked translate="no" or class="notranslate" stay as they are.

    Args:
        pattern: as `Markup`; of text between tags.
        attributes: True to translate alt, title, placeholder, aria-label and the value of buttons.
    """

    attributes: bool = False
    pages: ClassVar[Sequence[str]] = (".html", ".htm", ".xhtml")

    def read(self, path: pathlib.Path) -> str:
        """Return the text of an HTML file with its line breaks, without a byte order mark.

        Raises:
            UserError: if it is too large, or not UTF-8, or declares another charset.
        """
        content = read_bytes(path, _LONGEST)
        declared = _CHARSET.search(content[:_HEAD])
        if declared and declared[1].lower() not in (b"utf-8", b"utf8"):
            raise UserError(
                f"{path} declares the charset {declared[1].decode()}; convert it to UTF-8"
            )
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            where = f"byte {error.start:,}"
            raise UserError(f"{path} is not valid UTF-8 at {where}; convert it to UTF-8") from error

    def document(self, text: str) -> Document:
        self.check_size(text)
        tokens = tokens_of(text)
        if any(keeps_page(token) for token in tokens):
            self.tell_once("pages with <meta name=google content=notranslate> stay as they are")
            return Document([text])
        is_plain = self.pattern is None and next(references(text), None) is None
        if is_plain and {token.kind for token in tokens} <= {"text"}:
            lines = enumerate(BREAKS.split(text))
            return Document([line if odd % 2 else self._line(line) for odd, line in lines])
        tree = tree_of(tokens)
        values = list(self._values(tree, [])) if self.attributes and "\0" not in text else []
        parts = [*values, *self._parts_of(tree)]
        return _Page(parts) if values else Document(parts)

    def _line(self, line: str) -> Segment:
        """Return a line without markup."""
        if _INVISIBLE.search(line):
            return Segment([*self._text(line, ())], escaped)
        return Whole([Unit(line, line)], escaped)

    def _parts_of(self, node: Node) -> Iterator[Segment | str]:
        """Yield segments of inline content, and everything else as it is."""
        run: list[Unit] = []
        yield node.start
        for child in node.children:
            if not node.stays and (isinstance(child, str) or not child.is_block):
                run += self._units(child, ())
                continue
            if run:
                yield _segment(run)
            run = []
            if isinstance(child, str):
                yield child
            elif child.stays and not child.opens:
                yield child.raw
            else:
                yield from self._parts_of(child)
        if run:
            yield _segment(run)
        yield node.end

    def _units(self, node: Node | str, path: Path) -> Iterator[Unit]:
        """Yield the units of text, or of an inline element, with edges unless it is part of words.

        An edge is a space that is not written. Signs of footnotes are copied, but letters in sup
        are part of a word, as in 1st.
        """
        if isinstance(node, str):
            yield from self._text(node, path)
            return
        raised = node.text.strip() if node.name in ("sub", "sup") else ""
        is_sign = bool(raised) and not any(map(str.isalpha, raised))
        if node.stays or is_sign or not (node.children or node.end):
            shown = _INVISIBLE.sub("", node.text) if node.stays or is_sign else ""
            text = " ".join(shown.split())
            units = [Unit(text, node.raw, path, kept=bool(text))]
        else:
            inner = (*path, Tags(node.start, node.end))
            units = [unit for child in node.children for unit in self._units(child, inner)]
            units = units or [Unit("", "", inner)]
        is_part = node.name in _WITHIN or raised[:1].isalpha()
        edge = [] if is_part else [Unit(" ", "", path)]
        yield from [*edge, *units, *edge]

    def _text(self, text: str, path: Path) -> list[Unit]:
        """Return the units of text; invisible signs belong to the letter before them."""
        found, place, units = list[Unit](), 0, list[Unit]()
        for match in references(text):
            found += self.kept(text[place : match.start()])
            found.append(Unit(unescape(match[0]) or "\ufffd", match[0]))
            place = match.end()
        for unit in found + self.kept(text[place:]):
            before = units[-1] if units else Unit("", "")
            if not _INVISIBLE.fullmatch(unit.text):
                units.append(unit._replace(path=path))
            elif before.text.strip() and not before.kept and len(before.raw) < 99:
                units[-1] = before._replace(raw=before.raw + unit.raw)
            else:
                units.append(Unit("", unit.raw, path))
        return units

    def _values(self, node: Node, values: list[_Value]) -> list[_Value]:
        """Collect the attributes that people read, and write slots in their place."""
        names = _READ
        if node.name == "input" and attributes_of(node.start).get("type", "").lower() in _BUTTONS:
            names = _READ | {"value"}

        def slot(match: re.Match[str]) -> str:
            quote, value = match["quote"] or "", match["quoted"] or match["bare"] or ""
            units = self._text(value, ()) if match["name"].lower() in names else []
            if not any(unit.text.strip() for unit in units) or (not quote and '"' in value):
                return match[0]
            values.append(_Value(units, _escape_like(units, quote or '"'), is_bare=not quote))
            before = match[0].removesuffix(f"{quote}{value}{quote}")
            return f"{before}{quote}\0{len(values) - 1}\0{quote}"

        if node.name and not node.locked:
            size = len(node.name) + 1
            node.start = node.start[:size] + ATTRIBUTE.sub(slot, node.start[size:-1]) + ">"
        for child in node.children:
            if isinstance(child, Node):
                self._values(child, values)
        return values


def _segment(units: Sequence[Unit]) -> Segment:
    """Return a segment with the edges of elements that keep words apart."""
    kept, edges, before = list[Unit](), list[tuple[int, Unit]](), ""
    for unit in units:
        if (unit.text, unit.raw) == (" ", ""):
            edges.append((len(kept), unit))
            continue
        if unit.text:
            if edges and before and _are_apart(before, unit.text[0], len(edges) > 1):
                kept.insert(*edges[0])
            edges, before = [], unit.text[-1]
        kept.append(unit)
    return Segment(kept, _escape_like(kept))


def _are_apart(before: str, after: str, several: bool) -> bool:
    """Return True for characters to read as two words, where one or several elements end."""
    if before.isalnum() and after.isalnum() and several:
        return True
    if after in _OPENING:
        return in_word(before) or before in _CLOSING
    return in_word(after) and (in_word(before) or (before in _CLOSING and after.isalpha()))


def _escape_like(units: Sequence[Unit], quote: str = "") -> Callable[[str], str]:
    """Return a function that escapes text and a quote, with the references that units use."""
    bare = {unit.text for unit in units if unit.raw == unit.text}
    own = {
        ord(unit.text): unit.raw
        for unit in units
        if len(unit.text) == 1 and not unit.text.isspace() and unit.text not in bare
        if unit.raw != unit.text == unescape(unit.raw)
    }
    quotes = {ord(quote): escape(quote)} if quote else {}
    table = {ord("&"): "&amp;", ord("<"): "&lt;", **quotes, **own}
    return lambda text: text.translate(table)
