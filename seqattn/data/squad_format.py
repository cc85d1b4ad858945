"""Questions in SQuAD's format, read strictly and mended where that is safe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from seqattn.errors import UserError
from seqattn.storage import read_json


class Question(NamedTuple):
    """A question, its context, and where in it each answer stands."""

    id: str
    question: str
    context: str
    answers: list[str]
    starts: list[int]


@dataclass
class QuestionTally:
    """What had to be mended or left out.

    Attributes:
        questions: that came.
        unanswerable: of those that are kept, how many have no answer.
        moved: answers that stand elsewhere than the data says.
        dropped: answers that stand nowhere in their context.
        unfounded: questions left out because all their answers were dropped.
        empty: questions with nothing but white space in the question or the context.
        left_out: whether these have been left out.
        kept: questions that are left.
    """

    questions: int = 0
    unanswerable: int = 0
    moved: int = 0
    dropped: int = 0
    unfounded: int = 0
    empty: int = 0
    left_out: bool = False
    kept: int = 0

    def describe(self, split: str) -> str:
        """Says it in one line; what did not happen is not mentioned."""
        return ", ".join([f"{self.questions:,} {split} questions", *self.events()])

    def events(self) -> list[str]:
        """Says each thing that happened."""
        treated = "left out" if self.left_out else "kept, unanswerable where the context is empty"
        said = [
            (self.unanswerable, "unanswerable"),
            (self.moved, "answers moved to where they stand"),
            (self.dropped, "answers dropped that stand nowhere in their context"),
            (self.unfounded, "questions left out that lost all their answers"),
            (self.empty, f"with an empty question or context ({treated})"),
        ]
        return [f"{count:,} {what}" for count, what in said if count]


def read_questions(path: Path) -> Iterator[Question]:
    """Reads a SQuAD v1.1 or v2.0 file.

    Raises:
        UserError: the file is not there, is not JSON (with the line), or has another form (with
            the place).
    """
    form = 'JSON as SQuAD\'s ({"data": [{"paragraphs": [...]}]})'
    top = _Place(path, "", read_json(path, "a file in SQuAD's format", form))
    for article in top.items("data"):
        for paragraph in article.items("paragraphs"):
            context = paragraph.get("context", str)
            for entry in paragraph.items("qas"):
                impossible = "is_impossible" in entry.value and entry.get("is_impossible", bool)
                answers = [] if impossible else entry.items("answers")
                yield Question(
                    entry.get("id", str),
                    entry.get("question", str),
                    context,
                    [answer.get("text", str) for answer in answers],
                    [answer.get("answer_start", int) for answer in answers],
                )


class _Place:
    """An object of a JSON document that knows its place, for the message if its form is wrong."""

    def __init__(self, origin: Path, at: str, value: Any) -> None:
        self.origin, self.at, self.value = origin, at, value
        if not isinstance(value, dict):
            raise self._wrong(f"must be an object, it is {_KINDS[type(value)]}")

    def get(self, key: str, kind: type) -> Any:
        if key not in self.value:
            there = ", ".join(map(repr, self.value)) or "nothing"
            raise self._wrong(f"must have {key!r}, it has {there}")
        found = self.value[key]
        if type(found) is not kind:
            raise self._wrong(f"must have {_KINDS[kind]} as {key!r}, it is {_KINDS[type(found)]}")
        return found

    def items(self, key: str) -> list[_Place]:
        head = f"{self.at}.{key}".removeprefix(".")
        values = enumerate(self.get(key, list))
        return [_Place(self.origin, f"{head}[{n}]", value) for n, value in values]

    def _wrong(self, fault: str) -> UserError:
        return UserError(f"{self.origin}: {self.at or 'the whole'} {fault}")


_KINDS = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}
_KINDS |= {int: "a whole number", float: "a number with a point", type(None): "null"}


def kept(
    questions: Iterable[Question], tally: QuestionTally, training: bool, origin: str
) -> Iterator[Question]:
    """The questions that are fit for use, their answers at their places.

    Args:
        questions: as they came.
        tally: counts what is mended and left out.
        training: whether questions with an empty side are left out.
        origin: where they come from, for the message.

    Raises:
        UserError: two questions of one id, or other numbers of answers and starts.
    """
    tally.left_out = training
    seen: set[str] = set()
    for row in questions:
        if row.id in seen:
            raise UserError(f"{origin} must have each id once, {row.id!r} comes twice")
        seen.add(row.id)
        if len(row.answers) != len(row.starts):
            raise UserError(
                f"{origin} must have a start for each answer, {row.id!r} has "
                f"{len(row.answers)} answers and {len(row.starts)} starts"
            )
        tally.questions += 1
        hollow = not row.context.strip()
        if hollow or not row.question.strip():
            tally.empty += 1
            if training:
                continue
        mended = row._replace(answers=[], starts=[]) if hollow else _mended(row, tally)
        if row.answers and not mended.answers and not hollow:
            tally.unfounded += 1
            continue
        tally.unanswerable += not mended.answers
        tally.kept += 1
        yield mended


def _mended(row: Question, tally: QuestionTally) -> Question:
    answers, starts = [], []
    for text, start in zip(row.answers, row.starts, strict=True):
        place = nearest(row.context, text, start)
        if place is None:
            tally.dropped += 1
            continue
        tally.moved += place != start
        answers.append(text)
        starts.append(place)
    return row._replace(answers=answers, starts=starts)


def nearest(context: str, text: str, start: int) -> int | None:
    """The place of a text as near to a character as can be, before it if both sides are equal.

    Returns:
        Its first character; None where the text is empty or stands nowhere in the context.
    """
    if not text.strip():
        return None
    start = min(max(start, 0), len(context))
    both = (context.rfind(text, 0, start + len(text)), context.find(text, start))
    found = [place for place in both if place >= 0]
    return min(found, key=lambda place: abs(place - start), default=None)
