"""Sentences of texts, cuts of those that are too long, and their count in a corpus."""

import re
import unicodedata
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import sentencex

from seqattn.extras.sentences.languages import language_code

_WINDOW, _AHEAD = 2048, 256  # characters read at a time, and at least behind an end
_WIDE_SPACE = re.compile("[\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")
_HALF = re.compile("[\ud800-\udfff]")
_BEFORE_SPACE, _CLOSERS = ",;:\u00b7\u2013", "'\"\u2019\u201d\u00bb)\\]"
_ANYWHERE = "—…‥，、､；：،؛۔।॥՝፣፤፥፦᠂᠈၊"  # noqa: RUF001
_CLAUSES = re.compile(rf"(?:[{_BEFORE_SPACE}][{_CLOSERS}]*(?=\s)|[{_ANYWHERE}])(\s*)")
_SPACES = re.compile(r"(\s+)")
_SAMPLE = 10_000  # rows whose sentences are counted
_MARKS = 16  # combining marks to pass at most


def split_sentences(text: str, language: str = "en") -> list[str]:
    """Split a text into its sentences, which alternate with the spaces between them.

    The parts joined are the text. Spaces around it stay with its first and last sentence, so a text
    of one sentence, or of none, is one part. It is read in windows of 2,048 characters, as the work
    grows with their square; quotation marks further apart enclose nothing.

    Args: language: as in `language_code`.

    Raises:
        UserError: if the language is not known.
    """
    code = language_code(language)
    parts, start, first, last = list[str](), 0, len(text) - len(text.lstrip()), len(text.rstrip())
    for end in _ends(text, code):
        if max(start, first) < end < last:
            sentence = text[start:end].rstrip()
            spaces = _SPACES.match(text, end)
            next_start = spaces.end() if spaces else end
            parts += [sentence, text[start + len(sentence) : next_start]]
            start = next_start
    return [*parts, text[start:]]


def _ends(text: str, code: str) -> Iterator[int]:
    """Yield the ends of sentences in ascending order, some of them within the spaces after one."""
    start = 0
    while start < len(text):
        window = text[start : start + _WINDOW]
        is_last = start + _WINDOW >= len(text)
        sure = len(window) if is_last else _WINDOW - _AHEAD
        ends = [end for end in _ends_of_window(window, code) if 0 < end <= sure]
        yield from (start + end for end in ends)
        in_sentence = max(window.rfind(" ", 0, sure), 0) or sure  # starts with a whole word
        start += sure if is_last else ends[-1] if ends else in_sentence


def _ends_of_window(text: str, code: str) -> list[int]:
    """Return the ends of sentences by `sentencex`, as numbers of characters.

    It panics at spaces of several bytes and refuses halves of surrogate pairs: other characters
    stand in for both. A further panic, of which none is known, leaves the text in one sentence.
    """
    read = _HALF.sub("\ufffd", _WIDE_SPACE.sub(" ", text))
    try:
        boundaries = sentencex.get_sentence_boundaries(code, read)
        return [sentence["end_index"] for sentence in boundaries]
    except BaseException as error:  # a panic is no `Exception`, and its class cannot be imported
        if type(error).__name__ != "PanicException":
            raise
        return []


def cut_long(
    parts: Sequence[str], length: Callable[[str], int], limit: int
) -> tuple[list[str], int]:
    """Cut the sentences that are too long, and return the parts with the number of cuts.

    A cut is at the end of a clause near the middle, else at a space, else between any two
    characters, and pieces are cut again until all fit; a single character always does. The texts
    that `length` gets add up to n log n characters.

    Args:
        parts: as from `split_sentences`.
        length: returns the number of ids of a text, end marks included.
        limit: greatest length of a sentence, at least 1.
    """
    pieces = [_pieces(part, length, limit) if part.strip() else [part] for part in parts]
    return list(chain.from_iterable(pieces)), sum(len(alternating) // 2 for alternating in pieces)


def _pieces(text: str, length: Callable[[str], int], limit: int) -> list[str]:
    """Return the pieces of a sentence, which alternate with the spaces between them."""
    gaps: list[list[tuple[int, int]]] | None = None
    pieces, last_end, pending = list[str](), 0, [(0, len(text))]
    while pending:
        start, end = pending.pop()
        count = -(-length(text[start:end]) // limit)
        if count < 2 or end - start < 2:
            pieces += [text[last_end:start], text[start:end]]
            last_end = end
            continue
        if gaps is None:
            gaps = [[gap.span(1) for gap in kind.finditer(text)] for kind in (_CLAUSES, _SPACES)]
        target = start + max(1, (end - start) * (count // 2) // count)
        left_end, right_start = _gap(text, gaps, start, end, target)
        pending += [(right_start, end), (start, left_end)]
    return pieces[1:]


def _gap(
    text: str, kinds: Sequence[Sequence[tuple[int, int]]], start: int, end: int, target: int
) -> tuple[int, int]:
    """Return the gap nearest to a target within a span, as the end of the text before it and the
    start of the text after it."""
    for gaps in kinds:
        at = bisect(gaps, (target, target))
        near = [(a, b) for a, b in gaps[max(at - 1, 0) : at + 1] if start < a and b < end]
        if near:
            return min(near, key=lambda gap: abs(gap[0] - target))
    for at in range(target, min(target + _MARKS, end)):
        if not unicodedata.category(text[at]).startswith("M"):
            return at, at
    return target, target
