"""`python scripts/course.py [NOTEBOOK ...] [output=DIR]`: run the course, and keep its outputs.

The site shows these outputs (`docs/course/outputs` by default); the notebooks have none. Each check
must fail in a sentence before the answer, and pass after it. All seven take about 17 minutes.
"""

import ast
import hashlib
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
COURSE = ROOT / "docs" / "course"
Cell = Mapping[str, Any]


def code_cells(notebook: Path) -> list[Cell]:
    """Return the code cells of a notebook."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def tags(cell: Cell) -> list[str]:
    return list(cell["metadata"].get("tags", []))


def digest(notebook: Path) -> str:
    """Return a digest of the code on which outputs depend: all but checks, which only assert."""
    code = ["".join(c["source"]) for c in code_cells(notebook) if "check" not in tags(c)]
    return hashlib.sha256(json.dumps(code).encode()).hexdigest()[:16]


def anywhere(line: str) -> str:
    """Return a printed line without paths of this machine; tables keep their width."""
    short = line.replace(f"{ROOT}/", "").rstrip()
    short = re.sub(rf"{re.escape(tempfile.gettempdir())}(/tmp\w+)?", "FOLDER", short)
    if not short.endswith("│"):
        return short
    return f"{short[:-1]}{' ' * (len(line.rstrip()) - len(short))}│"


class Session:
    """A notebook in progress. Args: name: prefix of its pictures; folder: where they go."""

    def __init__(self, name: str, folder: Path) -> None:
        import matplotlib.pyplot as plt

        self.name, self.folder = name, folder
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.parts: list[dict[str, str]] = []
        self.printed = io.StringIO()
        plt.show = lambda: self.draw(plt.gcf())  # type: ignore[assignment]

    def run(self, cell: Cell, names: dict[str, Any] | None = None) -> list[dict[str, str]]:
        """Run a cell, in a copy of the names if one is given; return its texts and pictures."""
        self.parts, self.id = [], cell["id"]
        lines = "".join(cell["source"]).splitlines(keepends=True)
        tree = ast.parse("".join(line for line in lines if not line.startswith("%")))  # magics
        last = tree.body[-1] if tree.body else None
        if isinstance(last, ast.Expr):
            tree.body.pop()
        names = self.names if names is None else names
        with redirect_stdout(self.printed), redirect_stderr(self.printed):
            exec(compile(tree, self.id, "exec"), names)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), self.id, "eval"), names)
                if hasattr(value, "savefig"):
                    self.draw(value)
                elif value is not None:
                    print(repr(value))
        self.flush()
        return self.parts

    def flush(self) -> None:
        """Keep what was printed since the last picture."""
        text = self.printed.getvalue()
        if text.strip():
            self.parts.append({"text": "\n".join(map(anywhere, text.splitlines()))})
        self.printed.seek(0)
        self.printed.truncate()

    def draw(self, figure: Any) -> None:
        """Save a figure as a PNG of few colors."""
        import matplotlib.pyplot as plt
        from PIL import Image

        self.flush()
        image = io.BytesIO()
        figure.savefig(image, format="png", dpi=100, bbox_inches="tight")
        number = sum("image" in part for part in self.parts)
        file = f"{self.name}-{self.id}{f'-{number + 1}' if number else ''}.png"
        picture = Image.open(image).convert("RGB").quantize(64, dither=Image.Dither.NONE)
        picture.save(self.folder / file, optimize=True)
        self.parts.append({"image": file})
        plt.close("all")


def execute(notebook: Path, output: Path) -> None:
    """Run a notebook in a temporary folder, and write its outputs.

    Raises:
        SystemExit: a check passes without the answer, or fails without a sentence.
    """
    from matplotlib import use

    use("Agg")
    for old in output.glob(f"{notebook.stem}-*.png"):
        old.unlink()
    session = Session(notebook.stem, output)
    outputs, cells = {}, code_cells(notebook)
    for number, cell in enumerate(cells):
        if "check" in tags(cell):
            complaint = fails(session, cell)
            if len(complaint.split()) < 4 or "\n" in complaint:
                sys.exit(f"{notebook.name}, {cell['id']}: not a sentence: {complaint!r}")
            continue
        outputs[cell["id"]] = session.run(cell)
        if "answer" in tags(cell):
            check = cells[number - 1]
            outputs[check["id"]] = session.run(check)
    shown = {id: parts for id, parts in outputs.items() if parts}
    text = json.dumps({"code": digest(notebook), "cells": shown}, ensure_ascii=False, indent=1)
    (output / f"{notebook.stem}.json").write_text(text + "\n", encoding="utf-8")


def fails(session: Session, check: Cell) -> str:
    """Return what a check says before the answer; empty if it passes."""
    try:
        session.run(check, dict(session.names))
    except AssertionError as error:
        session.flush()
        return str(error)
    except Exception as error:
        sys.exit(f"{check['id']} raises {error!r}")
    return ""


def start(notebook: Path, output: Path) -> None:
    """Run a notebook in this process. The commands that it starts find this checkout."""
    os.environ |= {"OMP_NUM_THREADS": "1", "COLUMNS": "88", "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory(prefix="course_") as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        os.chdir(folder)
        sys.path[:0] = [str(ROOT), folder]
        execute(notebook, output)
        os.chdir(ROOT)


def main() -> int:
    words = sys.argv[1:]
    into = [word.partition("=")[2] for word in words if word.startswith("output=")]
    books = [Path(word).resolve() for word in words if not word.startswith("output=")]
    output = Path(into[0]).resolve() if into else COURSE / "outputs"
    output.mkdir(parents=True, exist_ok=True)
    for notebook in books or sorted(COURSE.glob("*.ipynb")):
        print(notebook.name, flush=True)
        process = get_context("spawn").Process(target=start, args=(notebook, output))
        process.start()
        process.join()
        if process.exitcode:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
