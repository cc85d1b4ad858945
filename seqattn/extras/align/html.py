"""HTML as segments: blocks split, inline tags are put around what their words became."""

import html
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import accumulate
from typing import NamedTuple

from seqattn.errors import UserError
from seqattn.extras.align.markup import BREAKS, Document, Markup, Whole
from seqattn.extras.align.segment import Path, Segment, Tags, Unit

_OPTIONAL = frozenset((
    "body", "caption", "colgroup", "dd", "dt", "head", "html", "li", "optgroup", "option", "p",
    "tbody", "td", "tfoot", "th", "thead", "tr",
))  # fmt: skip
"""Elements whose end tag may be left out."""
_BLOCKS = _OPTIONAL | {
    "address", "article", "aside", "audio", "blockquote", "br", "canvas", "center", "col",
    "details", "dialog", "dir", "div", "dl", "fieldset", "figcaption", "figure", "footer", "form",
    "frame", "frameset", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hgroup", "hr", "iframe",
    "legend", "link", "main", "menu", "meta", "nav", "noscript", "object", "ol", "pre", "search",
    "section", "select", "summary", "table", "template", "title", "ul", "video",
}  # fmt: skip
_VOID = frozenset((
    "area", "base", "br", "col", "embed", "frame", "hr", "img", "input", "link", "meta", "param",
    "source", "track", "wbr",
))  # fmt: skip
_SILENT = frozenset(("script", "style", "textarea", "svg", "math"))
_STAYS = _SILENT | {"code", "pre", "kbd", "samp"}
"""Elements that stay as they are; the model does not see the content of the silent ones."""
_CELLS = frozenset(("tr", "td", "th"))
_CLOSED_BY = {
    "li": {"li"}, "dt": {"dt", "dd"}, "dd": {"dt", "dd"}, "option": {"option"}, "body": {"head"},
    "tr": _CELLS, "td": _CELLS - {"tr"}, "th": _CELLS - {"tr"},
    "tbody": {*_CELLS, "thead", "tbody"}, "tfoot": {*_CELLS, "thead", "tbody"},
}  # fmt: skip
"""Innermost elements that a start tag ends."""
_ENTITY = re.compile(r"&(?:#\d+|#[xX][\da-fA-F]+|[A-Za-z][A-Za-z\d]*);")
_TOO_LONG = re.compile(r"&#\d{21}")  # Python's parser refuses numbers of thousands of digits
_DEEPEST, _MOST = 100, 20_000
"""Bounds of nested elements and of tags."""


class Token(NamedTuple):
    """A tag, a comment or a run of text: kind, name, how it is written, whether it stays."""

    kind: str
    name: str
    raw: str
    stays: bool = False


@dataclass
class Node:
    """An element with its children; text and comments have no name."""

    name: str
    start: str
    end: str = ""
    stays: bool = False
    children: "list[Node | str]" = field(default_factory=list)

    @property
    def raw(self) -> str:
        """The spelling."""
        inner = (child if isinstance(child, str) else child.raw for child in self.children)
        return "".join([self.start, *inner, self.end])

    @property
    def text(self) -> str:
        """Its text without tags."""
        parts = (child if isinstance(child, str) else child.text for child in self.children)
        return "" if self.name in _SILENT else html.unescape("".join(parts))

    @property
    def is_block(self) -> bool:
        """True if it splits text, or contains what does."""
        nodes = (child for child in self.children if isinstance(child, Node))
        return self.name in _BLOCKS or (not self.stays and any(node.is_block for node in nodes))


@dataclass(frozen=True)
class Html(Markup):
    """HTML; output is well-formed where the input is, and else repaired.

    Entities and white space stay. Block elements and br split; code, pre, script, style, comments
    and what has translate="no" stay as they are.

    Args:
        pattern: as `Markup`; of text between tags.
    """

    def document(self, text: str) -> Document:
        self.check_size(text)
        tokens = tokens_of(text)
        if (
            self.pattern is None
            and not _ENTITY.search(text)
            and {t.kind for t in tokens} <= {"text"}
        ):
            lines = enumerate(BREAKS.split(text))
            return Document([s if odd % 2 else Whole([Unit(s, s)], _minimal) for odd, s in lines])
        return Document([*self._parts_of(tree_of(tokens))])

    def _parts_of(self, node: Node) -> Iterator[Segment | str]:
        """Yield segments of inline content, and everything else as it is."""
        run: list[Unit] = []
        yield node.start
        for child in node.children:
            if isinstance(child, Node) and child.is_block:
                if run:
                    yield Segment(run, _escape_like(run))
                run = []
                if child.stays:
                    yield child.raw
                else:
                    yield from self._parts_of(child)
            else:
                run += self._units(child, ())
        if run:
            yield Segment(run, _escape_like(run))
        yield node.end

    def _units(self, node: Node | str, path: Path) -> Iterator[Unit]:
        """Yield the units of text, or of an inline element."""
        if isinstance(node, str):
            place = 0
            for match in _ENTITY.finditer(node):
                yield from self._plain(node[place : match.start()], path)
                yield Unit(html.unescape(match[0]), match[0], path)
                place = match.end()
            yield from self._plain(node[place:], path)
        elif node.stays or node.name in _VOID or not node.name:
            text = " ".join(node.text.split()) if node.stays else ""
            yield Unit(text, node.raw, path, kept=bool(text))
        else:
            inner = (*path, Tags(node.start, node.end))
            units = [unit for child in node.children for unit in self._units(child, inner)]
            yield from units or [Unit("", "", inner)]

    def _plain(self, text: str, path: Path) -> Iterator[Unit]:
        for unit in self.kept(text):
            yield unit._replace(path=path)


def _minimal(text: str) -> str:
    """Escape what a browser would read as markup."""
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", re.sub(r"&(?=#|[A-Za-z]+\d*;)", "&amp;", text))


def _escape_like(units: Sequence[Unit]) -> Callable[[str], str]:
    """Return a function that escapes text, with the entities that a segment uses."""
    bare = {unit.text for unit in units if unit.raw == unit.text}
    entities = {unit.text: unit.raw for unit in units if unit.raw != unit.text and not unit.kept}
    own = {
        ord(text): raw
        for text, raw in entities.items()
        if len(text) == 1 and text not in bare and not text.isspace()
    }
    table = {ord("&"): "&amp;", ord("<"): "&lt;", **own}
    return lambda text: text.translate(table)


class _Tokens(HTMLParser):
    """Collects tags and comments with their places."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self.lines = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
        self.found: list[tuple[int, str, str, bool]] = []

    def note(self, kind: str, name: str = "", stays: bool = False) -> None:
        line, column = self.getpos()
        self.found.append((self.lines[line - 1] + column, kind, name, stays))

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        stays = tag in _STAYS or ("translate", "no") in [(n, (v or "").lower()) for n, v in attrs]
        self.note("void" if tag in _VOID else "start", tag, stays)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.note("void" if tag in _VOID else "empty", tag)

    def handle_endtag(self, tag: str) -> None:
        self.note("end", tag)

    def handle_data(self, data: str) -> None:
        self.note("text")

    def handle_comment(self, data: str) -> None:
        self.note("comment")

    def handle_entityref(self, name: str) -> None:
        self.note("text")

    def handle_charref(self, name: str) -> None:
        self.note("text")

    def handle_decl(self, decl: str) -> None:
        self.note("comment")

    handle_pi = unknown_decl = handle_comment


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of a text; together they are the text.

    What follows a tag or comment without an end is text.

    Raises:
        UserError: for too many tags, or a character reference of many digits.
    """
    if _TOO_LONG.search(text):
        raise UserError("a character reference may have at most 20 digits; remove it")
    parser = _Tokens(text)
    with suppress(AssertionError):  # of a malformed declaration
        parser.feed(text)  # never closed: it would read unfinished tags in quadratic time
    line, column = parser.getpos()
    ends = [place for place, *_ in parser.found[1:]] + [parser.lines[line - 1] + column]
    tokens: list[Token] = []
    for (place, kind, name, stays), end in zip(parser.found, ends):
        raw = text[place:end]
        if kind == "text" and tokens and tokens[-1].kind == "text":
            tokens[-1] = Token("text", "", tokens[-1].raw + raw)
        else:
            tokens.append(Token(kind, name, raw, stays))
    if ends[-1] < len(text):
        tokens.append(Token("text", "", _minimal(text[ends[-1] :])))
    if len(tokens) > _MOST:
        raise UserError(f"a text may have at most {_MOST:,} tags, got more; split it")
    return tokens


def _end_text(children: "list[Node | str]") -> None:
    """Escape a < at the end, which would open a tag with what follows a dropped one."""
    if children and isinstance(text := children[-1], str) and text.endswith("<"):
        children[-1] = text[:-1] + "&lt;"


def tree_of(tokens: list[Token]) -> Node:
    """Return a tree of tokens: end tags without a start are dropped, missing ones added.

    Raises:
        UserError: for elements that nest too deeply.
    """
    root = Node("", "")
    stack = [root]

    def close(count: int, raw: str) -> None:
        for node in stack[: -count - 1 : -1]:
            node.end = "" if node.name in _OPTIONAL else f"</{node.name}>"
        stack[-count].end = raw or stack[-count].end
        del stack[-count:]

    for kind, name, raw, stays in tokens:
        if kind == "text":
            stack[-1].children.append(raw)
        elif kind == "end":
            names = [node.name for node in stack[:0:-1]]
            if name in names:
                close(names.index(name) + 1, raw)
            else:
                _end_text(stack[-1].children)
        else:
            while kind == "start" and stack[-1].name in _CLOSED_BY.get(name, ()):
                close(1, "")
            if name in _BLOCKS and stack[-1].name == "p" and name != "br":
                close(1, "")
            node = Node("" if kind in ("comment", "empty") else name, raw, stays=stays)
            stack[-1].children.append(node)
            if kind == "start":
                stack.append(node)
                if len(stack) > _DEEPEST:
                    raise UserError(f"tags nest more than {_DEEPEST} deep; simplify the text")
    if len(stack) > 1:
        close(len(stack) - 1, "")
    return root
