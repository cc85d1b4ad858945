"""Subtitles: SubRip (srt) and WebVTT (vtt)."""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from seqattn.extras.files.codes import Coded
from seqattn.extras.files.formats import LINE, Edit, TextFile, Translations
from seqattn.storage import kind_of

_TIMES = re.compile(
    r"[ \t]*(?:\d{1,9}:)?\d{1,2}:\d{1,2}[.,]\d{1,3}[ \t]*-->[ \t]*(?:\d{1,9}:)?\d{1,2}:\d{1,2}[.,]"
    r"\d{1,3}(?:[ \t].*)?"
)
"""A line with the times of a cue."""
_CODE = re.compile(
    r"<(?P<end>/?)(?P<name>[a-zA-Z]\w*)(?:[.\s][^<>]*)?>|<[\d:.]+>|\{\\[^{}]*\}|\{[a-zA-Z]:[^{}]*\}"
)
"""Tags, times within a cue, and codes of ASS and MicroDVD."""
_ENDS = tuple(".!?\u2026:;\"'\u201d\u00bb)]\u266a\u3002\uff01\uff1f\u061f\u0964")
"""Signs at the end of a cue after which no sentence goes on."""
_SPEAKER = re.compile(r"\s*(?:[-\u2013\u2014\u266a\[(>#]|<v[ .]|\w[\w .]{0,30}:\s)")
"""Beginnings of a line that somebody else says."""
_DASH = re.compile(r"\s*(?:(?:[-\u2013\u2014]|>>)\s*)?")
"""What stands before the words of a line."""
_CODE_OR_END = re.compile(rf"[ ]?\0[ ]?|{_CODE.pattern}")
"""A code, or the end of a cue in a sentence of several."""

_MOST = 6  # cues of a sentence


class Cue(NamedTuple):
    """A line of a cue, or several that are read as one.

    Args:
        begin, end: its place in the text of the file.
        lines: their number.
        block: where the whole cue begins.
    """

    begin: int
    end: int
    lines: int
    block: int


class Subtitles(TextFile):
    """Subtitles: a sentence over several cues is translated as a whole, and put back into these.

    Notes, styles, numbers, times, positions and line ends stay as they are. New notes of WebVTT
    stand before the cue.
    """

    @property
    def _has_references(self) -> bool:
        return kind_of(self.path).lower() == ".vtt"

    @cached_property
    def _sentences(self) -> list[list[Cue]]:
        """The cues that each sentence has."""
        sentences, previous = list[list[Cue]](), ""
        for cue in self._cues():
            text = _CODE.sub("", self.text[cue.begin : cue.end])
            if not any(map(str.isalpha, text)):
                previous = "."
                continue
            line = self.text[self.text.rfind("\n", 0, cue.begin) + 1 : cue.end]
            goes_on = not previous.rstrip().endswith(_ENDS) and not _SPEAKER.match(line)
            if goes_on and sentences and len(sentences[-1]) < _MOST:
                sentences[-1].append(cue)
            else:
                sentences.append([cue])
            previous = text
        return sentences

    @cached_property
    def _coded(self) -> list[Coded]:
        return [
            Coded.of("\0".join(map(self._line, cues)), _CODE_OR_END, self._has_references)
            for cues in self._sentences
        ]

    def _line(self, cue: Cue) -> str:
        return " ".join(self.text[cue.begin : cue.end].replace("\0", " ").split())

    def units(self) -> Sequence[str]:
        return [one.html for one in self._coded]

    def name(self, number: int) -> str:
        return self.line(self._sentences[number][0].begin)

    def edits(self, translations: Translations) -> Iterator[Edit]:
        for cues, coded, one in zip(self._sentences, self._coded, translations, strict=True):
            if one is None:
                continue
            block = cues[0].block
            for note in one.notes:
                yield Edit(block, block, f"NOTE {note.replace('-->', '->')}{self.end}{self.end}")
            texts = coded.text(one.html, self._has_references).split("\0")
            if len(texts) != len(cues) or not all(map(_is_filled, texts)):
                texts = _shared(" ".join(texts), [len(self._line(cue)) for cue in cues])
            for cue, text in zip(cues, texts, strict=True):
                before = self.text[cue.begin : cue.end]
                ends = before[len(before.rstrip()) :]
                breaks = [end for end in ("\r\n", "\r", "\n") if end in before]
                lines = _shared(" ".join(text.split()), [1] * cue.lines)
                yield Edit(cue.begin, cue.end, (breaks or ["\n"])[0].join(lines) + ends)

    def _cues(self) -> Iterator[Cue]:
        """Yield the lines of cues: those after the times, up to a blank one.

        Lines of a cue are one, unless somebody else says the next.
        """
        text, within, begin, end, lines, block = self.text, False, 0, 0, 0, 0
        shorter = 0  # the end without the last line
        for match in LINE.finditer(text):
            line = match[1].removeprefix("\ufeff")
            if _TIMES.fullmatch(line):
                if text[shorter:end].strip().isdecimal():  # the number of the next cue
                    end, lines = shorter, lines - 1
                if lines > 0:
                    yield _cue(text, begin, end, lines, block)
                within, lines, begin = True, 0, match.end()
            elif within:
                is_blank = not line.strip()
                if lines and (is_blank or _SPEAKER.match(line)):
                    yield _cue(text, begin, end, lines, block)
                    begin, lines = match.start(), 0
                within = not is_blank
                shorter, end, lines = end, match.end(1), lines + within
                block = match.end() if is_blank else block
            elif not line.strip() or (not match.start() and line.startswith("WEBVTT")):
                block = match.end()
            elif "-->" in line:
                self.leave(self.line(match.start()), "the times of the cue are not readable")
        if lines:
            yield _cue(text, begin, end, lines, block)


def _cue(text: str, begin: int, end: int, lines: int, block: int) -> Cue:
    """Return the cue without what stands before its words."""
    dash = _DASH.match(text, begin, end)
    return Cue(dash.end() if dash else begin, end, lines, block)


def _words(text: str) -> list[str]:
    """Return the words of a text, with their codes."""
    codes = [match[0] for match in _CODE.finditer(text)]
    words = _CODE.sub("\0", text).split()
    remaining = iter(codes)
    return [re.sub("\0", lambda _: next(remaining), word) for word in words]


def _is_filled(text: str) -> bool:
    return bool(_CODE.sub("", text).strip())


def _shared(text: str, sizes: Sequence[int]) -> list[str]:
    """Return the words of a text in parts of about these sizes, each with a word if it can."""
    words, parts, total = _words(text), list[str](), sum(sizes)
    place, before, size = 0, 0, 0
    length = len(" ".join(words))
    for number, own in enumerate(sizes):
        size += own
        rest, stop = len(sizes) - number - 1, place
        while stop < len(words) - rest and (
            stop == place or not rest or 2 * before + len(words[stop]) < 2 * length * size / total
        ):
            before += len(words[stop]) + 1
            stop += 1
        parts.append(" ".join(words[place:stop]))
        place = stop
    return parts
