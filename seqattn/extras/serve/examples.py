"""Inputs to try on the page, and the languages of a translation."""

import csv
import io
from typing import TypedDict

from seqattn.bundle.bundle import Bundle
from seqattn.bundle.nodes import build
from seqattn.errors import UserError
from seqattn.inputs import read_bytes, read_json
from seqattn.places import shipped

_COUNT = 3
_LONGEST = 400  # characters of an example


class ExampleDocument(TypedDict):
    """Input to try: a text, or a question with its context."""

    text: str
    context: str | None


def examples_for(bundle: Bundle) -> list[ExampleDocument]:
    """Return up to three inputs: sample sentences of the bundle's run, or bundled questions."""
    if bundle.asks:
        stories = read_json(shipped("data") / "demo_qa" / "val.json", "the demo's questions")
        each = stories["data"][0]["paragraphs"][:_COUNT]
        return [{"text": one["qas"][0]["question"], "context": one["context"]} for one in each]
    path = bundle.path.resolve().parent / "samples" / "samples.csv"
    try:
        rows = list(csv.reader(io.StringIO(read_bytes(path).decode(), newline="")))
    except (UserError, ValueError, csv.Error):  # missing, or not written by a run
        return []
    texts = next((row[1:] for row in rows if row[:1] == ["source"]), [])
    short = [text for text in dict.fromkeys(texts) if text.strip() and len(text) <= _LONGEST]
    return [{"text": text, "context": None} for text in short[:_COUNT]]


def languages_of(bundle: Bundle) -> list[str]:
    """Return the suffixes of source and target of a translation's data; [] if unknown."""
    if bundle.config.get("choices", {}).get("task") != "translation":
        return []
    try:
        data = build(bundle.config["data"], "data")
    except UserError:
        return []
    return [*getattr(data, "suffixes", {}).values()]
