"""Inputs to try on the page, and the languages of a translation."""

import csv
import io
from itertools import islice
from typing import TypedDict

from seqattn.bundle.bundle import Bundle
from seqattn.errors import UserError
from seqattn.inputs import read_bytes, read_json
from seqattn.installation import shipped
from seqattn.settings.data_paths import with_paths
from seqattn.settings.documents import Config
from seqattn.settings.nodes import build
from seqattn.storage import is_file

_COUNT = 3
_LONGEST = 400  # characters of an example


class ExampleDocument(TypedDict):
    """Input to try: a text, or a question with its context."""

    text: str
    context: str | None


def examples_for(bundle: Bundle) -> list[ExampleDocument]:
    """Return up to three inputs: sentences of the bundle's run or data, or bundled questions."""
    if "question" in bundle.reads:
        stories = read_json(shipped("data") / "demo_qa" / "val.json", "the demo's questions")
        each = stories["data"][0]["paragraphs"][:_COUNT]
        return [{"text": one["qas"][0]["question"], "context": one["context"]} for one in each]
    path = bundle.path.resolve().parent / "samples" / "samples.csv"
    try:
        rows = list(csv.reader(io.StringIO(read_bytes(path).decode(), newline="")))
        texts = next(row[1:] for row in rows if row[:1] == ["source"])
    except (UserError, ValueError, csv.Error, StopIteration):  # missing, or not written by a run
        texts = _validation_texts(bundle)
    short = [text for text in dict.fromkeys(texts) if text.strip() and len(text) <= _LONGEST]
    return [{"text": text, "context": None} for text in short[:_COUNT]]


def _validation_texts(bundle: Bundle) -> list[str]:
    """Return the first sources of the validation split; [] unless its files are there."""
    try:
        data = build(with_paths(bundle.config["data"], bundle.path.resolve()), "data")
        files = data.files("val")
        if not files or not all(map(is_file, files)):
            return []
        return [source for source, _ in islice(data.stream("val"), 20)]
    except UserError:
        return []


def languages_of(config: Config) -> list[str]:
    """Return the suffixes of source and target of a translation's data; [] if unknown."""
    if config.get("choices", {}).get("task") != "translation":
        return []
    try:
        data = build(config.get("data"), "data")
    except UserError:
        return []
    return [*getattr(data, "suffixes", {}).values()]
