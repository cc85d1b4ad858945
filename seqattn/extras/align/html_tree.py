"""HTML as tokens and a tree, read as browsers do, every character as it is written."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape, unescape
from itertools import pairwise
from typing import NamedTuple

from seqattn.errors import UserError

_OPTIONAL = frozenset((
    "body", "caption", "colgroup", "dd", "dt", "head", "html", "li", "optgroup", "option", "p",
    "rp", "rt", "tbody", "td", "tfoot", "th", "thead", "tr",
))  # fmt: skip
"""Elements whose end tag may be left out."""
_HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
_CLOSES_P = _HEADINGS | {
    "address", "article", "aside", "blockquote", "center", "dd", "details", "dialog", "dir", "div",
    "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "header", "hgroup", "hr",
    "li", "listing", "main", "menu", "nav", "ol", "p", "pre", "search", "section", "summary",
    "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul", "xmp",
}  # fmt: skip
BLOCKS = (_OPTIONAL - {"rp", "rt"}) | _CLOSES_P | {
    "audio", "br", "button", "canvas", "col", "datalist", "frame", "frameset", "iframe", "label",
    "legend", "link", "marquee", "meta", "noscript", "object", "select", "template", "title",
    "video",
}  # fmt: skip
"""Elements that split text."""
_HOLDERS = BLOCKS | {"", "ruby"}
"""Parents in which end tags may be left out."""
_VOID = frozenset((
    "area", "base", "br", "col", "embed", "frame", "hr", "img", "input", "link", "meta", "param",
    "source", "track", "wbr",
))  # fmt: skip
_FOREIGN = frozenset(("svg", "math"))
_RAW = frozenset(("iframe", "noembed", "noframes", "script", "style", "textarea", "title", "xmp"))
"""Elements without tags inside."""
SILENT = (_FOREIGN | _RAW | {"rp", "rt", "rtc"}) - {"title", "xmp"}
_STAYS = SILENT | {"code", "kbd", "listing", "pre", "samp", "xmp"}
"""Elements that stay as they are; the model does not see the content of the silent ones."""
_CELLS = frozenset(("tr", "td", "th"))
_ROWS = _CELLS | {"tbody", "thead"}
_TABLE = _ROWS | {"caption", "colgroup", "table", "tfoot"}
_CLOSED_BY = {
    "a": {"a"}, "button": {"button"},
    "li": {"li"}, "dt": {"dt", "dd"}, "dd": {"dt", "dd"}, "option": {"option"}, "body": {"head"},
    "optgroup": {"option", "optgroup"}, "rp": {"rp", "rt"}, "rt": {"rp", "rt"},
    "tr": _CELLS, "td": _CELLS - {"tr"}, "th": _CELLS - {"tr"}, "tbody": _ROWS, "tfoot": _ROWS,
}  # fmt: skip
"""Innermost elements that a start tag ends."""
_BOUNDS = frozenset(("caption", "table", "td", "template", "th"))
"""Elements that only end tags of tables end from inside."""

_NAME = r"[^\s/>][^\s/>=]*+"
_VALUE = r"""\s*+=\s*+(?:"[^"]*+"|'[^']*+'|(?=>)|[^\s>"'][^\s>]*+)"""
ATTRIBUTE = re.compile(
    rf"(?P<name>{_NAME})(?:\s*+=\s*+(?:(?P<quote>['\"])(?P<quoted>.*?)(?P=quote)|(?P<bare>[^\s>]*+)))?+",
    re.ASCII | re.DOTALL,
)
_MARKUP = re.compile(
    rf"<(?P<end>/?)(?P<name>[a-z][^\s/>]*+)(?:[\s/]*+{_NAME}(?:{_VALUE}|(?!\s*+=)))*+(?P<last>[\s/]*+)>"
    r"|<!--(?:-?>|.*?--!?>|(?P<comment>.*))|<(?:[!?]|/(?=[^a-z]))[^>]*+(?:>|(?P<bogus>\Z))",
    re.ASCII | re.IGNORECASE | re.DOTALL,
)
_CDATA = re.compile(r"<!\[CDATA\[(?:.*?\]\]>|(?P<cdata>.*))", re.DOTALL)
_CLOSES = {"comment": "-->", "bogus": ">", "cdata": "]]>"}
"""What a comment without an end lacks."""
_REFERENCE = re.compile(r"&(?:#\d+;?|#[xX][\da-fA-F]+;?|[A-Za-z][A-Za-z\d]{0,31};?)")
_TOO_LONG = re.compile(r"&#\d{21}")  # Python refuses to read numbers of thousands of digits
_DEEPEST, _MOST = 100, 20_000
"""Bounds of nested elements and of tags."""


class Token(NamedTuple):
    """A tag, a comment or a run of text: kind, name, how it is written, whether it asks for
    translation. A start tag without an end is empty."""

    kind: str
    name: str
    raw: str
    asks: bool | None = None


@dataclass
class Node:
    """An element with its children; comments have no name.

    It stays if its text is not translated, is locked if its attributes are not translated, either,
    and opens if it stays but for elements inside.
    """

    name: str
    start: str
    end: str = ""
    stays: bool = False
    locked: bool = False
    opens: bool = False
    children: "list[Node | str]" = field(default_factory=list)

    @property
    def raw(self) -> str:
        """The spelling."""
        inner = (child if isinstance(child, str) else child.raw for child in self.children)
        return "".join([self.start, *inner, self.end])

    @property
    def text(self) -> str:
        """Its text without tags."""
        parts = (unescape(one) if isinstance(one, str) else one.text for one in self.children)
        return "" if self.name in SILENT else "".join(parts)

    @property
    def is_block(self) -> bool:
        """True if it splits text, or contains what does."""
        nodes = (child for child in self.children if isinstance(child, Node))
        inside = self.name not in SILENT and any(node.is_block for node in nodes)
        return self.name in BLOCKS or self.opens or inside


def attributes_of(tag: str) -> dict[str, str]:
    """Return the values of a start tag's attributes by their names in lower case."""
    found = [*ATTRIBUTE.finditer(tag[1:-1])][:0:-1]  # the first of a name counts
    return {one["name"].lower(): unescape(one["quoted"] or one["bare"] or "") for one in found}


def references(text: str) -> Iterator[re.Match[str]]:
    """Yield the character references of a text."""
    return (match for match in _REFERENCE.finditer(text) if unescape(match[0]) != match[0])


def _asks(tag: str) -> bool | None:
    """Return what a start tag asks for, by attribute or class; None for nothing."""
    if "translate" not in tag.lower():
        return None
    values = attributes_of(tag)
    asked, names = values.get("translate", "-").lower(), values.get("class", "").lower().split()
    if asked == "no" or "notranslate" in names:
        return False
    return True if asked in ("", "yes") or "translate" in names else None


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of a text; together they are the text, a comment without an end gets one.

    A tag without an end, and what follows it, is text.

    Raises:
        UserError: for too many tags, or a character reference of many digits.
    """
    if _TOO_LONG.search(text):
        raise UserError("a character reference may have at most 20 digits; remove it")
    is_xml = "<?xml" in text[:99] or "xhtml" in text[:999].lower()
    tokens: list[Token] = []
    begin = place = foreign = 0  # of text, of the next tag, number of open elements of XML
    while (place := text.find("<", place)) >= 0:
        match = (_CDATA.match(text, place) if foreign else None) or _MARKUP.match(text, place)
        if match is None and re.match("</?[A-Za-z]", text[place : place + 3]):
            break
        if match is None:
            place += 1
            continue
        if begin < place:
            tokens.append(Token("text", "", text[begin:place]))
        begin, place, part = place, match.end(), match.groupdict()
        raw, name = match[0], (part.get("name") or "").lower()
        if not name:
            tokens.append(Token("comment", "", raw + _CLOSES.get(match.lastgroup or "", "")))
        elif part["end"]:
            foreign -= name in _FOREIGN and foreign > 0
            tokens.append(Token("end", name, raw))
        else:
            closed = part["last"].endswith("/")
            is_raw = name in _RAW and not foreign and not (closed and is_xml)
            foreign += name in _FOREIGN and not closed
            kind = "empty" if name in _VOID or (closed and not is_raw) else "start"
            tokens.append(Token(kind, name, raw, _asks(raw)))
            if is_raw:
                end = re.compile(rf"</{name}(?=[\s/>])", re.ASCII | re.IGNORECASE)
                place = found.start() if (found := end.search(text, place)) else len(text)
        begin = match.end()
    if begin < len(text):
        rest = text[begin:] if place < 0 else _without_tags(text[begin:])
        tokens.append(Token("text", "", rest))
    if len(tokens) > _MOST:
        raise UserError(f"a text may have at most {_MOST:,} tags, got more; split it")
    return tokens


def escaped(text: str) -> str:
    """Escape what a browser would read as markup."""

    def amp(match: re.Match[str]) -> str:
        return match[0] if unescape(match[0]) == match[0] else f"&amp;{match[0][1:]}"

    return _without_tags(_REFERENCE.sub(amp, text))


def _without_tags(text: str) -> str:
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text)


def _end_text(children: "list[Node | str]") -> None:
    """Escape the end of a text that would be read with what follows a dropped tag."""
    if children and isinstance(text := children[-1], str):
        match = re.search(r"(?:<|&[#\w]{0,33})\Z", text[-40:], re.ASCII)
        if match and unescape(match[0]) == match[0]:
            children[-1] = text.removesuffix(match[0]) + escape(match[0])


def _ended(stack: list[Node], name: str) -> int:
    """Return how many elements an end tag ends, 0 if it has no start."""
    bounds = BLOCKS if name not in BLOCKS else _BOUNDS if name not in _TABLE else {"table"}
    for count, node in enumerate(stack[:0:-1], 1):
        if node.name == name or {node.name, name} <= _HEADINGS:
            return count
        if node.name in bounds:
            break
    return 0


def tree_of(tokens: list[Token]) -> Node:
    """Return a tree of tokens: end tags without a start are dropped, missing ones added.

    Raises:
        UserError: for elements that nest too deeply.
    """
    root = Node("", "")
    stack = [root]

    def close(count: int, raw: str = "") -> None:
        for around, node in pairwise(stack[-count - 1 :]):
            is_optional = node.name in _OPTIONAL and around.name in _HOLDERS
            node.end = "" if is_optional else f"</{node.name}>"
        if raw[2:].lower().startswith(stack[-count].name):  # not of another heading
            stack[-count].end = raw
        del stack[-count:]

    for kind, name, raw, asks in tokens:
        if kind == "text":
            stack[-1].children.append(raw)
        elif kind == "end" and (count := _ended(stack, name)):
            close(count, raw)
        elif kind == "end" and name not in ("br", "p"):
            _end_text(stack[-1].children)
        else:
            closed_by = _CLOSED_BY.get(name, frozenset())
            while kind == "start" and (
                stack[-1].name in closed_by or (stack[-1].name == "p" and name in _CLOSES_P)
            ):
                node = stack.pop()
                node.end = "" if node.name in _OPTIONAL else f"</{node.name}>"
            if kind == "end":  # browsers read an empty element
                raw, asks = f"<{name}>", None
            around, end = stack[-1], f"</{name}>" if kind == "end" and name == "p" else ""
            locked = around.locked if asks is None else not asks
            stays = locked or name in SILENT or (not asks and (name in _STAYS or around.stays))
            node = Node(name, raw, end, stays, locked)
            if asks and around.stays and not any(one.name in SILENT for one in stack):
                for one in stack:
                    one.opens |= one.stays
            around.children.append(node)
            if kind == "start":
                stack.append(node)
                if len(stack) > _DEEPEST:
                    raise UserError(f"tags nest more than {_DEEPEST} deep; simplify the text")
    if len(stack) > 1:
        close(len(stack) - 1)
    return root


def keeps_page(token: Token) -> bool:
    """Return True for Google's tag of pages that are not to be translated."""
    if token.name != "meta" or "notranslate" not in token.raw.lower():
        return False
    values = attributes_of(token.raw)
    return [values.get(name, "").lower() for name in ("name", "content")] == [
        "google",
        "notranslate",
    ]
