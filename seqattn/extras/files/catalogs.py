"""Catalogs of messages: gettext (po)."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from seqattn.errors import UserError
from seqattn.extras.files.codes import Coded
from seqattn.extras.files.formats import LINE, Edit, TextFile, Translations

_CODE = re.compile(
    r"%(?:\(\w{1,99}\)|\d{1,2}\$)?[-+#0]{0,5}\d{0,9}(?:\.\d{1,9})?(?:hh|ll|[hlLqjzt])?"
    r"[diouxXeEfFgGcrsap%]|<(?P<end>/?)(?P<name>[a-zA-Z][\w:-]*)(?:\s[^<>]*)?/?>"
    r"|\{[^{}\s]{0,99}\}|\$\{?\w{1,99}\}?"
)
"""Formats of printf, tags, and names in braces."""
_STRING = re.compile(
    r"[ \t]*(?:(?P<key>msgctxt|msgid_plural|msgid|msgstr(?:\[(?P<number>\d{1,3})\])?)[ \t]*)?"
    r'"(?P<text>(?:[^"\\]|\\.)*+)"[ \t]*'
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a"}
_SPELLINGS = {sign: f"\\{name}" for name, sign in _ESCAPES.items()} | {'"': '\\"', "\\": r"\\"}
_SPECIAL = re.compile(r'["\\\n\t\r\b\f\v\a]')
_CHARSET = re.compile(r"(?i)charset=([\w-]+)")


@dataclass
class _Entry:
    """An entry of a catalog.

    Args:
        texts: strings by key: msgctxt, msgid, msgid_plural, msgstr or msgstr[N].
        places: of the strings of each msgstr in the file.
        begin: where its first line begins.
        flags: places of the lines of flags.
        is_broken: True if it has a line that cannot be read.
    """

    texts: dict[str, str] = field(default_factory=dict)
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    begin: int = 0
    flags: list[tuple[int, int]] = field(default_factory=list)
    is_broken: bool = False


class Catalog(TextFile):
    """A catalog of gettext: entries without a translation get one, and all else stays.

    A fuzzy entry has none, and loses that mark. Of plurals, the first is that of the singular.

    Args:
        path, skip_broken: as `TextFile`.
        everything: True to translate entries that have a translation, too.

    Raises:
        UserError: if it is not a catalog.
    """

    def __init__(self, path: Path, everything: bool = False, skip_broken: bool = False) -> None:
        super().__init__(path, skip_broken)
        self.everything = everything
        header = next((one for one in self._entries if one.texts.get("msgid") == ""), _Entry())
        charset = _CHARSET.search(header.texts.get("msgstr", ""))
        if charset and charset[1].lower() not in ("utf-8", "utf8", "ascii", "us-ascii", "charset"):
            raise UserError(f"{path} declares the charset {charset[1]}; convert it to UTF-8")

    @cached_property
    def _entries(self) -> list[_Entry]:
        entries, key = [_Entry(begin=int(self.text.startswith("\ufeff")))], ""
        for match in LINE.finditer(self.text):
            line, place = match[1].removeprefix("\ufeff"), match.span(1)
            if not line.strip() or line.startswith("#"):
                if entries[-1].texts:
                    entries.append(_Entry(begin=place[0]))
                if not line.strip() or line.startswith("#~"):
                    entries[-1] = _Entry(begin=match.end())
                if line.startswith("#,"):
                    entries[-1].flags.append(place)
                key = ""
                continue
            string = _STRING.fullmatch(line)
            if string is None or not (string["key"] or key):
                if not entries[-1].is_broken:
                    self.leave(self.line(place[0]), "this is not of a catalog of gettext")
                entries[-1].is_broken = True
                continue
            if string["key"]:
                key = string["key"]
                if key in ("msgctxt", "msgid") and "msgid" in entries[-1].texts:
                    entries.append(_Entry(begin=place[0]))
            entry = entries[-1]
            entry.texts[key] = entry.texts.get(key, "") + _unescaped(string["text"])
            entry.places[key] = entry.places.get(key, place)[0], place[1]
        return entries

    @cached_property
    def _strings(self) -> list[tuple[_Entry, str, str]]:
        """Entries with the key of each string to fill, and the text that it translates."""
        strings = []
        for entry in self._entries:
            keys = [key for key in entry.places if key.startswith("msgstr")]
            is_fuzzy = _is_fuzzy(self.text, entry)
            text = "" if entry.is_broken else entry.texts.get("msgid", "")
            plural = entry.texts.get("msgid_plural", text)
            for key in keys if text else ():
                if self.everything or is_fuzzy or not entry.texts[key]:
                    is_first = key in ("msgstr", "msgstr[0]")
                    strings.append((entry, key, text if is_first else plural))
        return strings

    def translated(self) -> Iterator[tuple[str, str]]:
        """Yield the texts of entries and their translations, but for fuzzy ones."""
        for entry in self._entries:
            is_fuzzy = _is_fuzzy(self.text, entry)
            pair = entry.texts.get("msgid", ""), entry.texts.get("msgstr", "")
            if all(pair) and not is_fuzzy:
                yield pair

    @cached_property
    def _lines(self) -> list[list[Coded | str]]:
        """The lines of each string; a blank one as it is."""
        return [
            [Coded.of(line, _CODE) if line.strip() else line for line in text.split("\n")]
            for _, _, text in self._strings
        ]

    def units(self) -> Sequence[str]:
        return [one.html for lines in self._lines for one in lines if isinstance(one, Coded)]

    def name(self, number: int) -> str:
        counts = [sum(isinstance(one, Coded) for one in lines) for lines in self._lines]
        entry, *_ = self._strings[bisect_right([*accumulate(counts)], number)]
        return self.line(entry.places["msgid"][0])

    def edits(self, translations: Translations) -> Iterator[Edit]:
        remaining, done = iter(translations), set[int]()
        for (entry, key, _), lines in zip(self._strings, self._lines, strict=True):
            each = [next(remaining) for one in lines if isinstance(one, Coded)]
            own = [one for one in each if one is not None]
            if len(own) < len(each):
                continue
            made = iter(own)
            texts = (one if isinstance(one, str) else one.text(next(made).html) for one in lines)
            notes = [note for one in own for note in one.notes]
            yield Edit(entry.begin, entry.begin, "".join(f"# {note}{self.end}" for note in notes))
            for place in entry.flags if id(entry) not in done else ():
                flags = _flags(self.text, place)
                if "fuzzy" in flags:
                    flags.remove("fuzzy")
                    yield Edit(*place, ", ".join(["#", *flags]) if flags else "#")
            done.add(id(entry))
            yield Edit(*entry.places[key], f"{key} {_quoted([*texts], self.end)}")


def _flags(text: str, place: tuple[int, int]) -> list[str]:
    """Return the flags of a line."""
    return [flag.strip() for flag in text[slice(*place)].split(",")[1:]]


def _is_fuzzy(text: str, entry: _Entry) -> bool:
    return any("fuzzy" in _flags(text, place) for place in entry.flags)


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text)


def _quoted(lines: Sequence[str], end: str) -> str:
    """Return a string of several lines with escapes, each on a line of the file that so ends."""
    parts = [*(f"{line}\n" for line in lines[:-1]), *([lines[-1]] if lines[-1] else [])] or [""]
    quoted = [f'"{_SPECIAL.sub(lambda sign: _SPELLINGS[sign[0]], part)}"' for part in parts]
    return end.join([*['""'] * (len(quoted) > 1), *quoted])
