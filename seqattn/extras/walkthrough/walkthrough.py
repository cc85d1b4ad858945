"""The subcommand walkthrough: a page that computes every number of a translation as you type."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

from seqattn.bundle.bundle import Bundle
from seqattn.errors import UserError
from seqattn.extras.walkthrough.model_document import model_document
from seqattn.storage import file_faults, user_path, write_whole
from seqattn.subcommands.bundle_run import BundleRun
from seqattn.training.task_options import task_class

SCRIPTS = "segment.js", "model.js", "elements.js", "network.js", "head.js", "page.js"
"""Scripts of the page, in order."""
_PAIRS, _WORDS, _EXAMPLES, _LONGEST = 100_000, 20_000, 4, 60
_SEVERAL = 0.1
"""Share of sources of several sentences up to which the page asks for single ones."""


@dataclass(frozen=True, kw_only=True)
class Walkthrough(BundleRun):
    """Write a page on which a bundle translates what is typed, without a server.

    Args:
        bundle, trust: as `BundleRun`.
        data: the data of the bundle, whose words the page knows.
        output: the file, ending in .html.
        examples: sentences to try, the first of which is shown when the page opens; None for the
            first short ones of the validation split.
    """

    data: Any
    output: str
    examples: Sequence[str] | None = None

    def run(self) -> Path:
        """Write the page and print its path; return the path.

        Raises:
            UserError: if the page lacks a part of the bundle, or cannot be written.
        """
        path = user_path(self.output)
        if path.suffix not in (".html", ".htm") or path.is_dir():
            raise UserError(f"output must be a file such as page.html, got {self.output}")
        bundle = self.load().texts("walkthrough")
        source = task_class(bundle.config).source(self.data)
        document = document_of(bundle, source, self.examples)
        with file_faults("write", path):
            path.parent.mkdir(parents=True, exist_ok=True)
        text = page(document, bundle.path.resolve().parent.name)
        write_whole(path, text.encode())
        print(f"walkthrough: {path}   ({len(text.encode()) / 1e6:,.1f} MB)", flush=True)
        return path


def document_of(bundle: Bundle, data: Any, examples: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the document of a page: the model, what its training data have, and examples.

    Args:
        bundle: the bundle.
        data: its source of pairs.
        examples: sentences to try; None for short ones of the validation split.

    Raises:
        UserError: as `model_document`, or the data cannot be read.
    """
    counts, several = Counter[str](), Counter[bool]()
    for source, _ in islice(data.stream("train"), _PAIRS):
        counts.update(words_of(source))
        several[bool(re.search(r"[.!?]\s+\S", source))] += 1
    if examples is None:
        short = (source for source, _ in data.stream("val") if len(source) <= _LONGEST)
        examples = [*islice(short, _EXAMPLES)]
    if not examples or not all(text.strip() for text in examples):
        raise UserError('examples needs at least one sentence, such as ["A dog runs."]')
    document = model_document(bundle)
    for text, ids in zip(examples, bundle.tokenizer.encode_source(examples), strict=True):
        if len(ids) > document["most"]:
            raise UserError(f"an example has more than {document['most'] - 1} tokens: {text[:50]}")
    words = sorted(word for word, _ in counts.most_common(_WORDS))
    single = several[True] <= _SEVERAL * several.total()
    return {"words": words, "examples": [*examples], "single": single, **document}


def words_of(text: str) -> list[str]:
    """Return the words of a text without the punctuation around them."""
    return re.findall(r"[^\W_](?:[^\s]*[^\W_])?", text)


def script() -> str:
    """Return the page's program: all scripts in one scope."""
    return "(() => {\n" + "\n".join(map(part, SCRIPTS)) + "})();\n"


def data_script(document: dict[str, Any]) -> str:
    """Return a script that hands the document to the page, in ASCII."""
    return f"globalThis.walkthroughModel = {json.dumps(document)};\n".replace("<", "\\u003c")


def page(document: dict[str, Any], name: str) -> str:
    """Return the page as HTML that loads nothing else. Args: name: name of the model."""
    parts = {"style": part("style.css"), "body": part("body.html"), "name": escape(name)}
    parts |= {"data": data_script(document), "script": script()}
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], part("page.html"))


def part(name: str) -> str:
    """Return a file of the page."""
    return (files("seqattn.extras.walkthrough") / "page" / name).read_text(encoding="utf-8")
