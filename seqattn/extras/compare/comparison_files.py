"""Tables of a comparison as Markdown, LaTeX and CSV, and everything as one HTML page."""

import base64
import csv
import io
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from seqattn.subcommands.run_tables import TableDocument

_LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "±": r"$\pm$",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}  # fmt: skip
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:86rem;padding:0 1rem;color:#222}
h1,h2,li,p,summary{overflow-wrap:anywhere}h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2.2rem}
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
td,th{padding:.25rem .7rem;border-bottom:1px solid #ddd;text-align:right;white-space:nowrap}
td:first-child,th:first-child{text-align:left}
th{border-bottom:2px solid #888;white-space:normal;vertical-align:bottom}
.texts td,.texts th{text-align:left;white-space:normal;vertical-align:top}
.note{color:#555;font-size:.9em}img{max-width:100%;height:auto}
summary{cursor:pointer;margin:.5rem 0}
"""


def cells(table: TableDocument) -> list[list[str]]:
    """Return the rows as text cells."""
    return [["-" if cell is None else str(cell) for cell in row] for row in table["rows"]]


def as_markdown(tables: Sequence[TableDocument]) -> str:
    """Return tables under headings, with their notes below."""
    parts = []
    for table in tables:
        rows = [table["columns"], ["---", *["---:"] * (len(table["columns"]) - 1)], *cells(table)]
        lines = ["| " + " | ".join(c.replace("|", r"\|") for c in row) + " |" for row in rows]
        notes = "".join(f"\n- {note}" for note in table["notes"])
        parts.append(f"## {table['title']}\n\n" + "\n".join(lines) + "\n" + notes)
    return "\n\n".join(parts) + "\n"


def as_latex(tables: Sequence[TableDocument]) -> str:
    """Return a `tabular` for each table, with the rules of the package booktabs."""
    parts = []
    for table in tables:
        head, *rows = (
            " & ".join(map(latex_escaped, row)) + r" \\"
            for row in [table["columns"], *cells(table)]
        )
        body = [r"\toprule", head, r"\midrule", *rows, r"\bottomrule"]
        columns = "l" + "r" * (len(table["columns"]) - 1)
        notes = [rf"\par\footnotesize {latex_escaped(note)}" for note in table["notes"]]
        parts.append("\n".join([
            r"\begin{table}", r"\centering", rf"\caption{{{latex_escaped(table['title'])}}}",
            rf"\begin{{tabular}}{{{columns}}}", *body, r"\end{tabular}", *notes, r"\end{table}",
        ]))  # fmt: skip
    return "% \\usepackage{booktabs}\n" + "\n\n".join(parts) + "\n"


def latex_escaped(text: str) -> str:
    """Escape the characters that are special in LaTeX."""
    return "".join(_LATEX.get(sign, sign) for sign in text)


def as_csv(table: TableDocument) -> str:
    """Return rows of plain numbers, with empty cells for missing values."""
    lines = io.StringIO(newline="")
    csv.writer(lines).writerows([table["columns"], *table["rows"]])
    return lines.getvalue()


def as_page(
    title: str,
    words: Sequence[str],
    methods: Sequence[str],
    tables: Sequence[TableDocument],
    pictures: Mapping[str, Path],
    texts: Sequence[TableDocument],
) -> str:
    """Return one HTML file with the plots embedded.

    Args:
        title: title of the page.
        words: conclusions, as sentences.
        methods: description of how the figures were computed.
        tables: tables of figures.
        pictures: PNG files by title.
        texts: tables of sentences, initially collapsed.
    """
    images = "".join(
        f'<h2>{escape(name)}</h2><img alt="{escape(name)}" src="data:image/png;base64,'
        f'{base64.b64encode(path.read_bytes()).decode()}">'
        for name, path in pictures.items()
    )
    folded = "".join(
        f"<details><summary>{escape(table['title'])}</summary>{_html(table, 'texts')}</details>"
        for table in texts
    )
    notes, how = ("".join(f"<li>{escape(one)}</li>" for one in lines) for lines in (words, methods))
    sections = "".join(f"<h2>{escape(table['title'])}</h2>{_html(table)}" for table in tables)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width"><title>{escape(title)}</title><style>{_STYLE}</style></head>'
        f"<body><h1>{escape(title)}</h1><ul>{notes}</ul>{sections}{images}"
        f"<h2>Sentences with the largest differences</h2>{folded}"
        f"<h2>Methods</h2><ul>{how}</ul></body></html>\n"
    )


def _html(table: TableDocument, kind: str = "") -> str:
    def row(texts: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts) + "</tr>"

    body = row(table["columns"], "th") + "".join(row(texts, "td") for texts in cells(table))
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in table["notes"])
    return f'<div class="wide"><table class="{kind}">{body}</table></div>{notes}'


def file_name(words: str) -> str:
    """Return a file name of letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")
