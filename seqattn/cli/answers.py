"""`generate` for question answering: JSON lines with a question and a context in, answers out."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from seqattn.cli.bundle import SpanBundle, TextBundle, load_bundle
from seqattn.cli.texts import decoded, rows_of, written
from seqattn.errors import UserError
from seqattn.generation.spans import Answered
from seqattn.training.memory import keep_freed_memory

Config = dict[str, Any]
_EXPECTED = 'expected {"question": "...", "context": "..."}'


class Asked(NamedTuple):
    """A question on a context, and its name where it has one."""

    question: str
    context: str
    id: str | None


def answer_questions(settled: Mapping[str, Any]) -> None:
    """Answers every line of the input with a line of JSON, in order."""
    source = None if settled["input"] is None else Path(settled["input"]).expanduser()
    asked = None if source is None else list(read_questions(source))
    keep_freed_memory()
    bundle = load_bundle(settled["bundle"], settled["device"])
    search = settled["generation"]
    if asked is not None:
        written(_lines(bundle, asked, search), settled["output"])
        return
    lines = decoded(iter(sys.stdin.buffer.readline, b""), "standard input")
    each = (_lines(bundle, [one], search) for one in parsed(lines, "standard input"))
    written((line for lines in each for line in lines), settled["output"])


def read_questions(path: Path) -> Iterator[Asked]:
    """The questions of a file of JSON lines.

    Raises:
        UserError: where it is absent, or names the line that is wrong.
    """
    if not path.is_file():
        raise UserError(f"input={path} is not a file")
    with path.open("rb") as file:
        yield from parsed(decoded(file, str(path)), str(path))


def parsed(lines: Iterable[str], name: str) -> Iterator[Asked]:
    """Questions from lines of JSON; blank lines are passed over.

    Raises:
        UserError: naming the line that is no JSON object with a question and a context.
    """
    for row, where in rows_of(lines, name, _EXPECTED):
        question, context = row.get("question"), row.get("context")
        if not isinstance(question, str) or not isinstance(context, str):
            raise UserError(f"{where} lacks a question or a context; {_EXPECTED}")
        if not question.strip():
            raise UserError(f"{where} has an empty question; {_EXPECTED}")
        yield Asked(question, context, None if row.get("id") is None else str(row["id"]))


def _lines(
    bundle: TextBundle | SpanBundle, asked: list[Asked], search: Mapping[str, Any]
) -> Iterator[str]:
    questions, contexts = [one.question for one in asked], [one.context for one in asked]
    if isinstance(bundle, SpanBundle):
        rows = [_of_spans(found) for found in bundle.answer(questions, contexts, search)]
    else:
        rows = [{"answer": text} for text in bundle.answer(questions, contexts, search)]
    for one, row in zip(asked, rows, strict=True):
        name = {} if one.id is None else {"id": one.id}
        yield json.dumps({**name, "question": one.question, **row}, ensure_ascii=False)


def _of_spans(found: Answered) -> Config:
    """The best answer and the others; "" with no characters where there is none."""
    each: list[Config] = [
        {"answer": a.text, "start": a.start, "end": a.end, "probability": a.probability}
        for a in found.answers
    ]
    none = {"answer": "", "start": None, "end": None, "probability": None}
    others = {"others": each[1:]} if len(each) > 1 else {}
    return {**(each[0] if each else none), "no_answer": found.no_answer, **others}
