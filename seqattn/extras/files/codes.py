"""Texts with codes in them, such as tags of subtitles, as HTML and back."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import unescape

ELEMENT = re.compile(r'<(?:x|br) id="(?P<one>\d{1,9})"/?>|<g id="(?P<begin>\d{1,9})">|</g>')
"""A code in HTML: one that stands by itself, or one around text. At a `br` no sentence goes on."""
_DEEPEST = 50  # start tags among which that of an end tag is sought


@dataclass(frozen=True)
class Coded:
    """A text whose codes are elements: `g` around text, `x` in it, each with the number of a code.

    Args:
        html: the text, without the spaces around it.
        around: these spaces, before and after it.
        codes: the codes of the elements, as they are written: both ends of `g`.
    """

    html: str
    codes: Sequence[tuple[str, str]]
    around: tuple[str, str] = ("", "")

    @classmethod
    def of(cls, text: str, codes: re.Pattern[str], has_references: bool = False) -> "Coded":
        """Read a text.

        Args:
            codes: pattern of a code. Its group "name" is the name of a tag, with "end" for an end
                tag. A start tag and its end become `g`, all others `x`.
            has_references: True if the text has references such as &amp;.
        """
        whole, text = text, text.strip()
        begin = whole.find(text)
        around = whole[:begin], whole[begin + len(text) :]
        pieces, found = list[str](), list[tuple[str, str]]()
        starts: list[tuple[str, int, int]] = []  # names, numbers and places of start tags
        place = 0
        for match in codes.finditer(text):
            pieces.append(_escaped(text[place : match.start()], has_references))
            place = match.end()
            tag, number = match.groupdict(), len(found)
            name = tag.get("name") if not match[0].endswith("/>") else None
            if name and tag.get("end") and any(start[0] == name for start in starts[-_DEEPEST:]):
                while (start := starts.pop())[0] != name:
                    pass
                _, number, at = start
                pieces[at] = f'<g id="{number}">'
                found[number] = found[number][0], match[0]
                pieces.append("</g>")
                continue
            if name and not tag.get("end"):
                starts.append((name, number, len(pieces)))
            pieces.append(f'<x id="{number}"/>')
            found.append((match[0], ""))
        pieces.append(_escaped(text[place:], has_references))
        return cls("".join(pieces), found, around)

    def text(self, html: str, has_references: bool = False) -> str:
        """Return the text of HTML in which codes may have moved. Args: as of `of`."""
        pieces, open_codes, place = list[str](), list[int](), 0
        for match in ELEMENT.finditer(html):
            piece = html[place : match.start()]
            pieces.append(piece if has_references else unescape(piece))
            place = match.end()
            if match["one"] is not None:
                pieces.append(self.codes[int(match["one"])][0])
            elif match["begin"] is not None:
                open_codes.append(int(match["begin"]))
                pieces.append(self.codes[open_codes[-1]][0])
            elif open_codes:
                pieces.append(self.codes[open_codes.pop()][1])
        piece = html[place:]
        pieces.append(piece if has_references else unescape(piece))
        return "".join(pieces).join(self.around)


def _escaped(text: str, has_references: bool) -> str:
    text = text if has_references else text.replace("&", "&amp;")
    return text.replace("<", "&lt;").replace(">", "&gt;")
