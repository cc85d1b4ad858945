"""Questions in SQuAD's format, read strictly and repaired where that is safe."""

from collections.abc import Iterable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

from seqattn.errors import UserError
from seqattn.inputs import read_json

EVENTS = ("unanswerable", "moved", "unplaced", "unfounded", "empty")
"""Counts from `mended` for each question: 1 if it has no answer; answers at a wrong offset; answers
that do not occur in the context; 1 if none of them does; 1 if question or context is blank."""


class Question(NamedTuple):
    """A question, its context, its answers, and their offsets; -1 if an answer does not occur."""

    id: str
    question: str
    context: str
    answers: list[str]
    starts: list[int]


def read_questions(path: Path) -> Iterator[Question]:
    """Yield the questions of a SQuAD v1.1 or v2.0 file.

    Raises:
        UserError: if it is not JSON or has another structure; the message names the place.
    """
    for entry, context in _entries(path):
        impossible = "is_impossible" in entry.value and entry.get("is_impossible", bool)
        answers = [] if impossible else entry.items("answers")
        yield Question(
            entry.get("id", str),
            entry.get("question", str),
            context,
            [answer.get("text", str) for answer in answers],
            [answer.get("answer_start", int) for answer in answers],
        )


class Asked(NamedTuple):
    """A question on a context, and its original id or None."""

    question: str
    context: str
    id: Any


def read_asked(path: Path) -> Iterator[Asked]:
    """Yield the questions of such a file without answers. Raises: as `read_questions`."""
    for entry, context in _entries(path):
        yield Asked(entry.get("question", str), context, entry.value.get("id"))


def _entries(path: Path) -> "Iterator[tuple[_Place, str]]":
    """Yield each question's object, and its context."""
    form = 'JSON in SQuAD format ({"data": [{"paragraphs": [...]}]})'
    top = _Place(path, "", read_json(path, "a file in SQuAD format", form))
    for article in top.items("data"):
        for paragraph in article.items("paragraphs"):
            context = paragraph.get("context", str)
            for entry in paragraph.items("qas"):
                yield entry, context


class _Place:
    """An object of a JSON document with its place, for error messages."""

    def __init__(self, origin: Path, at: str, value: Any) -> None:
        self.origin, self.at, self.value = origin, at, value
        if not isinstance(value, dict):
            raise self._wrong(f"must be an object, got {_KINDS[type(value)]}")

    def get(self, key: str, kind: type) -> Any:
        if key not in self.value:
            there = ", ".join(map(repr, self.value)) or "nothing"
            raise self._wrong(f"must have the key {key!r}, got {there}")
        value = self.value[key]
        if type(value) is not kind:
            raise self._wrong(f"must have {_KINDS[kind]} as {key!r}, got {_KINDS[type(value)]}")
        return value

    def items(self, key: str) -> "list[_Place]":
        head = f"{self.at}.{key}".removeprefix(".")
        values = enumerate(self.get(key, list))
        return [_Place(self.origin, f"{head}[{n}]", value) for n, value in values]

    def _wrong(self, fault: str) -> UserError:
        return UserError(f"{self.origin}: {self.at or 'the file'} {fault}")


_KINDS = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
_KINDS |= {int: "an integer", float: "a float", type(None): "null"}


def mended(questions: Iterable[Question], origin: str) -> Iterator[dict[str, Any]]:
    """Yield rows of questions with corrected answer offsets, and counts of repairs.

    An answer that does not occur in its context keeps its text and starts at -1.

    Raises:
        UserError: for a repeated id, or different numbers of answers and starts.
    """
    seen: set[str] = set()
    for row in questions:
        if row.id in seen:
            raise UserError(f"{origin} must have unique ids, but {row.id!r} occurs twice")
        seen.add(row.id)
        if len(row.answers) != len(row.starts):
            raise UserError(
                f"{origin} must have one start per answer, but {row.id!r} has "
                f"{len(row.answers)} answers and {len(row.starts)} starts"
            )
        places = list(map(nearest, repeat(row.context), row.answers, row.starts))
        yield {
            **row._asdict(),
            "starts": places,
            "unanswerable": int(not places),
            "moved": sum(place not in (-1, start) for place, start in zip(places, row.starts)),
            "unplaced": places.count(-1),
            "unfounded": int(bool(places) and max(places) < 0),
            "empty": int(not (row.context.strip() and row.question.strip())),
        }


def nearest(context: str, text: str, start: int) -> int:
    """Return the occurrence of a text nearest to a character; on ties, the one before it.

    -1 if the text is blank or does not occur in the context.
    """
    if not text.strip():
        return -1
    start = min(max(start, 0), len(context))
    both = (context.rfind(text, 0, start + len(text)), context.find(text, start))
    occurrences = [place for place in both if place >= 0]
    return min(occurrences, key=lambda place: abs(place - start), default=-1)
