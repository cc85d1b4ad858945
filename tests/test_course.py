"""Notebooks of the course: their form, and by -m exhaustive that they run and check what they ask.

Cells are tagged: `exercise` is a stub, `check` asserts, `answer` defines the names of the stub.
"""

import json
import os
import subprocess
import sys
from itertools import pairwise

import pytest

from tests.pages import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "course").glob("*.ipynb"))
BY_NAME = pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
RUNNER = """
import json, sys

def run(cell, names):
    lines = "".join(cell["source"]).splitlines(keepends=True)
    code = "".join(line for line in lines if not line.startswith("%"))  # magics of Jupyter
    exec(compile(code, cell.get("id", "cell"), "exec"), names)

cells = [cell for cell in json.load(open(sys.argv[1]))["cells"] if cell["cell_type"] == "code"]
names = {"__name__": "__main__"}
for number, cell in enumerate(cells):
    tags = cell["metadata"].get("tags", [])
    if "check" in tags:
        try:
            run(cell, dict(names))
        except Exception:
            continue
        sys.exit(f"the check passes without the answer: {''.join(cell['source'])}")
    run(cell, names)
    if "answer" in tags:
        run(cells[number - 1], names)
"""


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
    assert all("assert" in check for check in checks)


@BY_NAME
def test_each_code_cell_follows_a_text(path):
    cells = read(path)["cells"]
    for before, cell in pairwise(cells):
        if cell["cell_type"] == "code" and not tags(cell):
            assert before["cell_type"] == "markdown", "".join(cell["source"])


@pytest.mark.exhaustive
@BY_NAME
def test_a_notebook_runs_and_its_checks_fail_before_the_answer(path, tmp_path):
    environment = {
        **os.environ,
        "MPLBACKEND": "Agg",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, path],
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
