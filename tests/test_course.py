"""Notebooks of the course: their form, and by -m exhaustive that they run and check what they ask.

`scripts/course.py` runs them; the outputs that it keeps are those of the site.

Cells are tagged: `exercise` is a stub, `check` asserts, `answer` defines the names of the stub.
"""

import ast
import json
import subprocess
import sys
from itertools import pairwise

import pytest

from scripts.course import digest
from tests.pages import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "course").glob("*.ipynb"))
BY_NAME = pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def tags(cell):
    return cell["metadata"].get("tags", [])


@BY_NAME
def test_a_notebook_is_plain_and_has_exercises_with_answers_and_checks(path):
    book = read(path)
    assert (book["nbformat"], book["nbformat_minor"]) >= (4, 5)
    assert book["metadata"]["kernelspec"]["name"] == "python3"
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code)
    order = [tag for cell in code for tag in tags(cell)]
    exercises = order.count("exercise")
    assert 2 <= exercises <= 4
    assert order == ["exercise", "check", "answer"] * exercises
    checks = ["".join(cell["source"]) for cell in code if "check" in tags(cell)]
    assert [text for text in checks if "assert" not in text or without_words(text)] == []


def without_words(code):
    """The assertions of a check that would not say what is wrong."""
    nodes = [*ast.walk(ast.parse(code))]
    plain = [node for node in nodes if isinstance(node, ast.Assert) and node.msg is None]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    close = [call for call in calls if ast.unparse(call.func).endswith("assert_close")]
    return [*plain, *(c for c in close if "msg" not in [word.arg for word in c.keywords])]


@BY_NAME
def test_the_outputs_on_the_site_are_those_of_the_code(path):
    kept = json.loads((path.parent / "outputs" / f"{path.stem}.json").read_text(encoding="utf-8"))
    assert kept["code"] == digest(path), f"run python scripts/course.py {path.relative_to(ROOT)}"
    parts = [part for cell in kept["cells"].values() for part in cell]
    pictures = {part["image"] for part in parts if "image" in part}
    assert {file.name for file in (path.parent / "outputs").glob(f"{path.stem}*.png")} == pictures


@BY_NAME
def test_each_code_cell_follows_a_text(path):
    cells = read(path)["cells"]
    for before, cell in pairwise(cells):
        if cell["cell_type"] == "code" and not tags(cell):
            assert before["cell_type"] == "markdown", "".join(cell["source"])


@pytest.mark.exhaustive
@BY_NAME
def test_a_notebook_runs_and_its_checks_fail_before_the_answer(path, tmp_path):
    command = [sys.executable, ROOT / "scripts" / "course.py", path, f"output={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
