"""The page as one file with inlined style, scripts and documents, loading nothing else."""

import base64
import gzip
import json
import re
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files

from seqattn.extras.report.document_types import RunDocument, SentenceDocument

_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async function|function|const|class) (\w+))", re.MULTILINE)


def page(
    run: RunDocument | None = None, sentences: Sequence[SentenceDocument] = (), title: str = ""
) -> str:
    """Return the page as HTML.

    Args:
        run: document of the run; None for a server's page, which requests its documents.
        sentences: documents of the run's sentences, in order.
        title: title of a server's page.
    """
    documents = [
        f'<script type="text/plain" id="sentence-{number}">{squeezed(sentence)}</script>'
        for number, sentence in enumerate(sentences)
    ]
    if run is not None:
        documents.insert(0, f'<script type="application/json" id="run">{escaped(run)}</script>')
    parts = {
        "title": escape(title if run is None else run["title"]),
        "style": _text("style.css"),
        "documents": "\n".join(documents),
        "script": joined_scripts("live" if run is None else "main"),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _text("page.html"))


def escaped(document: object) -> str:
    """Escape JSON so that no text in it ends a script or begins a comment."""
    text = _json(document)
    for sign, code in (("<", "\\u003c"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029")):
        text = text.replace(sign, code)
    return text


def squeezed(document: object) -> str:
    """Compress a document's JSON and encode it as base64."""
    return base64.b64encode(gzip.compress(_json(document).encode(), mtime=0)).decode("ascii")


def _json(document: object) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


@cache
def joined_scripts(name: str) -> str:
    """Bundle a module and its imports into one script, with a scope for each."""
    order: list[str] = []

    def visit(module: str) -> None:
        for _, needed in _IMPORT.findall(_text(f"{module}.js")):
            visit(needed)
        if module not in order:
            order.append(module)

    visit(name)
    return "\n".join(map(_scoped, order))


def _scoped(module: str) -> str:
    text = _text(f"{module}.js")
    exports = ", ".join(name for _, name in _EXPORT.findall(text))
    body = _EXPORT.sub(r"\1", _IMPORT.sub(r"const \1 = $\2;", text))
    return f"const ${module} = (() => {{\n{body}return {{ {exports} }};\n}})();"


def _text(name: str) -> str:
    return (files("seqattn.extras.report") / "page" / name).read_text(encoding="utf-8")
