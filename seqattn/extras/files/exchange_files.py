"""Files of translation tools: XLIFF 1.2 and 2, and translation memories (TMX)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from seqattn.data.languages import known_language
from seqattn.errors import UserError
from seqattn.extras.files.codes import Coded
from seqattn.extras.files.formats import Edit, TextFile, Translations, xml_escaped
from seqattn.extras.files.xml_text import Element, parse_xml

_TAG = r"(?:\s(?:[^<>\"']|\"[^\"]*\"|'[^']*')*)?"
_CODE = re.compile(
    r"<!--.*?-->|<\?.*?\?>"
    rf"|<(?P<whole>(?:\w+:)?(?:bpt|ept|it|ph|ut|hi))\b{_TAG}(?<!/)>.*?</(?P=whole)\s*>"
    rf"|<(?P<end>/?)(?P<name>[\w:.-]+){_TAG}/?>",
    re.DOTALL,
)
"""Elements in a text: those whose content is a code of another format, and tags of all others."""
_CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_NAME, _PREFIX = re.compile(r"<([\w:.-]+)"), re.compile(r"<((?:[\w.-]+:)?)")
_AFTER_NOTES = frozenset(("originalData", "segment", "ignorable"))
"""Elements of a unit of XLIFF 2 that follow its notes."""
_STATE = re.compile(r"(?<=\s)state\s*=\s*(?:\"[^\"]*\"|'[^']*')")


class Unit(NamedTuple):
    """A text of a file.

    Args:
        source: the element that has it.
        name: its name in messages.
        place: where its translation is written: the begin and end of what it replaces.
        head, tail: what is written before and after the translation.
        states: further edits.
        notes: where notes on it are written, and what is written before and after them.
    """

    source: Element
    name: str
    place: tuple[int, int]
    head: str
    tail: str
    notes: tuple[tuple[int, int], str, str]
    states: tuple[Edit, ...] = ()


class ExchangeFile(TextFile):
    """A file of XML with sources and targets. The text of an element keeps its codes.

    Args:
        path, skip_broken: as `TextFile`.
        everything: True to translate what has a translation, too.
        source_language, target_language: of the texts, where a file has several; None for its own.

    Raises:
        UserError: if it is not a file of this kind, or has other languages.
    """

    def __init__(
        self,
        path: Path,
        everything: bool = False,
        source_language: str | None = None,
        target_language: str | None = None,
        skip_broken: bool = False,
    ) -> None:
        super().__init__(path, skip_broken)
        self.everything = everything
        self.languages = source_language, target_language

    @cached_property
    def _units(self) -> list[Unit]:
        [top] = parse_xml(self.text, self.path).children or [Element("", {}, 0, 0)]
        if top.name == "xliff":
            is_first = top.attributes.get("version", "").startswith("1")
            found = self._of_first(top) if is_first else self._of_second(top)
        elif top.name == "tmx":
            found = self._of_memory(top)
        else:
            raise UserError(f"{self.path} is neither XLIFF nor TMX: it begins with <{top.name}>")
        return [one for one in found if self._inner(one.source).strip()]

    @cached_property
    def _coded(self) -> list[Coded]:
        return [
            Coded.of(self._inner(one.source), _CODE, has_references=True) for one in self._units
        ]

    def _inner(self, element: Element) -> str:
        text = self.text[element.inner : element.outer]
        return _CDATA.sub(lambda match: xml_escaped(match[1]), text)

    def units(self) -> Sequence[str]:
        return [one.html for one in self._coded]

    def name(self, number: int) -> str:
        return self._units[number].name

    def edits(self, translations: Translations) -> Iterator[Edit]:
        notes = dict[tuple[tuple[int, int], str, str], list[str]]()
        for unit, coded, new in zip(self._units, self._coded, translations, strict=True):
            if new is None:
                continue
            text = coded.text(new.html, has_references=True)
            yield Edit(*unit.place, f"{unit.head}{text}{unit.tail}")
            yield from unit.states
            prefix = self._prefix(unit.source)
            each = [f"<{prefix}note>{xml_escaped(one)}</{prefix}note>" for one in new.notes]
            notes.setdefault(unit.notes, []).extend(each)
        for (place, head, tail), each in notes.items():
            if each:
                yield Edit(*place, f"{head}{''.join(each)}{tail}")

    def _prefix(self, element: Element) -> str:
        """Return the prefix of an element's name, such as "x:"."""
        match = _PREFIX.match(self.text, element.begin)
        return match[1] if match else ""

    def _of_first(self, top: Element) -> Iterator[Unit]:
        """Yield the units of XLIFF 1.2."""
        for file in top.each("file"):
            named = (file.attributes.get(f"{side}-language") for side in ("source", "target"))
            if not self._has_languages(*named):
                continue
            for one in file.each("trans-unit"):
                yield from self._unit(one, one, one.child("seg-source"))

    def _of_second(self, top: Element) -> Iterator[Unit]:
        """Yield the units of XLIFF 2."""
        if not self._has_languages(*(top.attributes.get(f"{side}Lang") for side in ("src", "trg"))):
            return
        for unit in top.each("unit"):
            notes, prefix = unit.child("notes"), self._prefix(unit)
            after = [one for one in unit.children if one.name in _AFTER_NOTES]
            begin = after[0].begin if after else unit.inner
            where = (begin, begin), f"<{prefix}notes>", f"</{prefix}notes>"
            if notes is not None:
                is_empty = notes.outer == notes.end
                end = notes.outer, notes.outer
                where = ((notes.begin, notes.end), *where[1:]) if is_empty else (end, "", "")
            for one in unit.children:
                if one.name == "segment":
                    tag = self.text[one.begin : one.inner]
                    state = Edit(one.begin, one.inner, _with_state(tag))
                    yield from self._unit(unit, one, None, where, (state,))

    def _unit(
        self,
        unit: Element,
        holder: Element,
        after: Element | None,
        notes: tuple[tuple[int, int], str, str] | None = None,
        states: tuple[Edit, ...] = (),
    ) -> Iterator[Unit]:
        """Yield the unit of a source and its target, unless it must not be translated.

        Args: notes: as of `Unit`; None to write them, and the state, at the target.
        """
        source, target = holder.child("source"), holder.child("target")
        if source is None or _is_fixed(unit):
            return
        name = f"unit {unit.attributes.get('id', '')}"
        if target is None:
            tag = f"<{self._prefix(source)}target>"
            before = self.text[holder.inner : source.begin]
            indent = before[len(before.rstrip()) :]
            at = (after or source).end
            head = indent + (tag if notes else _with_state(tag))
            where = notes or ((at, at), "", "")
            yield Unit(source, name, (at, at), head, f"</{tag[1:]}", where, states)
        elif self.everything or not self.text[target.inner : target.outer].strip():
            tag = self.text[target.begin : target.inner]
            opened = f"{tag[:-2].rstrip()}>" if tag.endswith("/>") else tag
            head = opened if notes else _with_state(opened)
            tail = f"</{_NAME.match(tag)[1]}>"  # type: ignore[index]
            where = notes or ((target.end, target.end), "", "")
            yield Unit(source, name, (target.begin, target.end), head, tail, where, states)

    def _of_memory(self, top: Element) -> Iterator[Unit]:
        """Yield the units of a translation memory."""
        header = top.child("header")
        own = header.attributes.get("srclang", "*all*") if header else "*all*"
        source_language, target_language = self.languages
        if target_language is None:
            raise UserError(
                f"{self.path} may have any languages; set files.target_language to the code that "
                "new translations get"
            )
        for number, one in enumerate(top.each("tu"), 1):
            children = (child for child in one.children if child.name == "tuv")
            variants = [(language_of(child.attributes), child) for child in children]
            wanted = source_language or one.attributes.get("srclang") or own
            sources = [v for code, v in variants if wanted == "*all*" or matches(code, wanted)]
            targets = [v for code, v in variants if matches(code, target_language)]
            segment = sources[0].child("seg") if sources else None
            if segment is None or (targets and targets[0] is sources[0]):
                continue
            name = f"unit {one.attributes.get('tuid', number)}"
            begin = variants[0][1].begin
            notes = (begin, begin), "", ""
            if not targets:
                before = self.text[one.inner : begin]
                indent, at = before[len(before.rstrip()) :], variants[-1][1].end
                head = f'{indent}<tuv xml:lang="{target_language}"><seg>'
                yield Unit(segment, name, (at, at), head, "</seg></tuv>", notes)
            elif (old := targets[0].child("seg")) is not None and (
                self.everything or not self.text[old.inner : old.outer].strip()
            ):
                yield Unit(segment, name, (old.begin, old.end), "<seg>", "</seg>", notes)

    def _has_languages(self, *languages: str | None) -> bool:
        """Return True if these are the wanted languages, as far as both are known."""
        pairs = zip(languages, self.languages, strict=True)
        return all(not own or not wanted or matches(own, wanted) for own, wanted in pairs)


def language_of(attributes: Mapping[str, str]) -> str:
    """Return the language that attributes of a variant name."""
    return attributes.get("xml:lang") or attributes.get("lang", "")


def matches(code: str, wanted: str) -> bool:
    """Return True for a code of a language, such as en for en-US or eng_Latn."""
    code, wanted = code.lower().replace("_", "-"), wanted.lower().replace("_", "-")
    names = known_language(code), known_language(wanted)
    if names[0] and names[0] == names[1] and code.split("-")[0] != wanted.split("-")[0]:
        return True  # by codes of two and three letters
    return code == wanted or code.startswith(f"{wanted}-") or wanted.startswith(f"{code}-")


def _is_fixed(unit: Element) -> bool:
    """Return True if a unit, or what it is in, must not be translated."""
    one: Element | None = unit
    while one is not None:
        if (translate := one.attributes.get("translate")) is not None:
            return translate == "no"
        one = one.parent
    return False


def _with_state(tag: str) -> str:
    """Return a start tag with the state of a translation."""
    changed, count = _STATE.subn('state="translated"', tag)
    return changed if count else f'{tag[:-1].rstrip()} state="translated">'
