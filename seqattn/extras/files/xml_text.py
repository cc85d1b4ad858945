"""XML as its own text: the elements of a file with their places in it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from seqattn.errors import UserError

_DEEPEST, _MOST = 256, 1_000_000  # elements
_TAG_END = re.compile(rb"(?:[^<>\"']|\"[^\"]*\"|'[^']*')*>")


@dataclass(slots=True)
class Element:
    """An element, with the places of its parts in the text of a file.

    Args:
        name: without a prefix.
        attributes: by name, with the prefix.
        begin, inner: where its start tag begins and ends.
        outer, end: where its end tag begins and ends; both as `inner` for an empty one.
        children: the elements in it.
        parent: the element that it is in; None for the first.
    """

    name: str
    attributes: dict[str, str]
    begin: int
    inner: int
    outer: int = 0
    end: int = 0
    children: list["Element"] = field(default_factory=list)
    parent: "Element | None" = field(default=None, repr=False)

    def child(self, name: str) -> "Element | None":
        """Return the first child of a name; None without one."""
        return next((one for one in self.children if one.name == name), None)

    def each(self, *names: str) -> Iterator["Element"]:
        """Yield the elements of some names in it, and it, in the order of the text."""
        waiting = [self]
        while waiting:
            one = waiting.pop()
            if one.name in names:
                yield one
            waiting += reversed(one.children)


def parse_xml(text: str, where: Path | str) -> Element:
    """Parse the text of an XML file. Args: where: its name, for messages.

    Nothing is fetched or expanded: declarations of entities are refused.

    Raises:
        UserError: if it is not well-formed, declares entities, nests too deeply, or has too many
            elements.
    """
    content = text.encode()
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    top = Element("", {}, 0, 0)
    open_elements, count = [top], 0

    def place() -> int:
        return parser.CurrentByteIndex

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if count > _MOST:
            raise UserError(f"{where} has more than {_MOST:,} elements; split it")
        if len(open_elements) > _DEEPEST:
            raise UserError(f"{where} nests deeper than {_DEEPEST} elements")
        begin = place()
        match = _TAG_END.match(content, begin + 1)
        inner = match.end() if match else begin
        parent = open_elements[-1]
        one = Element(name.rpartition(":")[2], attributes, begin, inner, parent=parent)
        parent.children.append(one)
        open_elements.append(one)

    def end(_: str) -> None:
        one = open_elements.pop()
        is_empty = content[one.inner - 2 : one.inner] == b"/>"
        one.outer = one.inner if is_empty else place()
        one.end = one.inner if is_empty else content.index(b">", one.outer) + 1

    def refuse(*_: object) -> None:
        raise UserError(f"{where} declares entities; remove the declarations")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise UserError(f"{where} is not well-formed XML: {error}") from error
    _to_text(top, text, content)
    return top


def _to_text(top: Element, text: str, content: bytes) -> None:
    """Turn places in bytes into places in the text."""
    if len(text) == len(content):
        return
    elements = [*_all(top)]
    places = sorted({at for one in elements for at in (one.begin, one.inner, one.outer, one.end)})
    known, before, index = dict[int, int](), 0, 0
    for place in places:
        index += len(content[before:place].decode())
        known[place] = index
        before = place
    for one in elements:
        one.begin, one.inner = known[one.begin], known[one.inner]
        one.outer, one.end = known[one.outer], known[one.end]


def _all(top: Element) -> Iterator[Element]:
    waiting = [top]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += one.children
