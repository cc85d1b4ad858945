"""Questions in SQuAD's format, read strictly and repaired where that is safe."""

import json
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
    """A question, its context, its answers, and their offsets; -1 if an answer does not occur.

    Its id is any value of JSON, or None without one.
    """

    id: Any
    question: str
    context: str
    answers: list[str]
    starts: list[int]


def read_questions(path: Path) -> Iterator[Question]:
    """Yield the questions of a file: SQuAD v1.1 or v2.0, or objects as in `datasets`.

    Such an object, in a list or one per line, has "id", "question", "context" and "answers".

    Raises:
        UserError: if it is not JSON or has another structure; the message names the place.
    """
    for entry, context in entries(path):
        answers = [] if entry.flag("is_impossible") else entry.answers()
        texts = [answer.get("text", str) for answer in answers]
        starts = [
            answer.get("answer_start", int)
            if "answer_start" in answer.value
            else context.find(text)
            for answer, text in zip(answers, texts, strict=True)
        ]
        question = entry.get("question", str)
        yield Question(entry.value.get("id"), question, context, texts, starts)


def entries(path: Path) -> "Iterator[tuple[Place, str]]":
    """Yield each question's object, and its context."""
    form = 'JSON in SQuAD format ({"data": [{"paragraphs": [...]}]})'
    rows = read_json(path, "a file in SQuAD format", form, rows=True)
    if len(rows) != 1 or (isinstance(rows[0], dict) and "context" in rows[0]):
        for number, value in enumerate(rows, 1):
            row = Place(path, f"row {number}", value)
            yield row, row.get("context", str)
        return
    top = Place(path, "", rows[0])
    for article in top.items("data"):
        for paragraph in article.items("paragraphs"):
            context = paragraph.get("context", str)
            for entry in paragraph.items("qas"):
                yield entry, context


class Place:
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

    def items(self, key: str) -> "list[Place]":
        head = f"{self.at}.{key}".removeprefix(".")
        values = enumerate(self.get(key, list))
        return [Place(self.origin, f"{head}[{n}]", value) for n, value in values]

    def flag(self, key: str) -> bool:
        """Return True for true or 1; False for false, 0, null or no such key."""
        value = self.value.get(key)
        return bool(value if value in (0, 1, None) else self.get(key, bool))

    def answers(self) -> "list[Place]":
        """Return the objects in "answers", which may be an object of lists as in `datasets`."""
        if not isinstance(self.value.get("answers"), dict):
            return self.items("answers")
        lists = Place(self.origin, f"{self.at}.answers", self.value["answers"])
        columns = {
            key: lists.get(key, list)
            for key in ("text", "answer_start")
            if key in lists.value or key == "text"
        }
        if len({*map(len, columns.values())}) > 1:
            raise lists._wrong("must have as many starts as texts")
        rows = zip(*columns.values(), strict=True)
        return [
            Place(self.origin, f"{lists.at}[{n}]", dict(zip(columns, row)))
            for n, row in enumerate(rows)
        ]

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
    known_ids: set[str] = set()
    for number, row in enumerate(questions, 1):
        name = f"question {number}" if row.id is None else row.id
        name = name if isinstance(name, str) else json.dumps(name, ensure_ascii=False)
        if name in known_ids:
            raise UserError(f"{origin} must have unique ids, but {name!r} occurs twice")
        known_ids.add(name)
        if len(row.answers) != len(row.starts):
            raise UserError(
                f"{origin} must have one start per answer, but {name!r} has "
                f"{len(row.answers)} answers and {len(row.starts)} starts"
            )
        places = list(map(nearest, repeat(row.context), row.answers, row.starts))
        yield {
            **row._asdict(),
            "id": name,
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
    candidates = (context.rfind(text, 0, start + len(text)), context.find(text, start))
    occurrences = [index for index in candidates if index >= 0]
    return min(occurrences, key=lambda index: abs(index - start), default=-1)
