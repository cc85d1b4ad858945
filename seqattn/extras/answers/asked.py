"""Questions to answer, from files, lines or plain texts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from seqattn.data.lines import json_rows
from seqattn.data.source_ids import Headed
from seqattn.errors import UserError
from seqattn.extras.answers.squad_format import entries
from seqattn.storage import kind_of

EXPECTED = '{"question": "...", "context": "..."}'
"""Form of a line with a question."""


def question_source(question: str, context: str) -> Headed:
    """Return the source of a generative answer; all its windows begin with the question."""
    head = f"question: {question} context: "
    return Headed(head + context, len(head))


class Asked(NamedTuple):
    """A question on a context, and its original id or None."""

    question: str
    context: str
    id: Any

    def plain(self) -> dict[str, Any]:
        """Return the id, if any, and the question by name."""
        name = {} if self.id is None else {"id": self.id}
        return {**name, "question": self.question}


def read_asked(path: Path) -> Iterator[Asked]:
    """Yield the questions of such a file without answers. Raises: as `read_questions`."""
    for entry, context in entries(path):
        yield Asked(entry.get("question", str), context, entry.value.get("id"))


def read_questions(path: Path | None) -> Iterator[list[tuple[int, Asked]]]:
    """Yield questions with their line numbers, in parts as `read_texts`.

    Args:
        path: a file of JSON lines, or in SQuAD's format if it ends in ".json"; None for JSON lines
            on standard input.

    Raises:
        UserError: if a line has no question; the message names it.
    """
    if path is not None and kind_of(path) == ".json":
        yield [*enumerate(read_asked(path), 1)]
        return
    for rows in json_rows(path, f"expected {EXPECTED}"):
        yield [(number, _question(row, where)) for number, row, where in rows]


def _question(row: dict[str, Any], where: str) -> Asked:
    question, context = row.get("question"), row.get("context")
    if not isinstance(question, str) or not isinstance(context, str):
        raise UserError(f"{where} needs a question and a context; expected {EXPECTED}")
    if not question.strip():
        raise UserError(f"{where} has an empty question; expected {EXPECTED}")
    return Asked(question, context, row.get("id"))
