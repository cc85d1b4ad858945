"""Notebooks of the course: their form and checks, and by -m exhaustive that they run.

`scripts/course.py` runs them; the outputs that it keeps are those of the site.

Cells are tagged: `exercise` is a stub, `check` asserts, `answer` defines the names of the stub.
"""

import ast
import json
import subprocess
import sys
from functools import cache
from itertools import chain, pairwise

import pytest
import torch

from scripts.course import digest
from tests.exercises import ANSWERS, BEFORE
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
    count = order.count("exercise")
    assert 2 <= count <= 4
    assert order == ["exercise", "check", "answer"] * count
    tried = [number for name, number in ANSWERS if path.name.startswith(name)]
    assert tried == [*range(count)]
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


@cache
def exercises(name):
    """The code of a notebook: stubs, checks and answers in order, and each cell by its id."""
    [path] = [path for path in NOTEBOOKS if path.name.startswith(name)]
    cells = [cell for cell in read(path)["cells"] if cell["cell_type"] == "code"]
    code = {cell["id"]: "".join(cell["source"]) for cell in cells}
    kinds = ("exercise", "check", "answer")
    return *([code[cell["id"]] for cell in cells if kind in tags(cell)] for kind in kinds), code


@pytest.mark.parametrize(("name", "number"), ANSWERS, ids=str)
def test_a_check_accepts_right_answers_and_names_what_is_wrong(name, number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # of modules that change within a second
    stubs, checks, ours, code = exercises(name)
    begin, right, wrong = ANSWERS[name, number]
    given = dict[str, object]()
    before = [code.get(part, part).replace("%matplotlib inline", "") for part in BEFORE[name]]
    for part in (*before, *chain(*zip(ours[:number], checks[:number]))):
        exec(part, given)

    def checked(answer):
        own = dict(given)
        exec(answer, own)
        exec(checks[number], own)

    for answer in (ours[number], *(f"{begin} {rest}" for rest in right)):
        checked(answer)
    for answer in (stubs[number], *(f"{begin} {rest}" for rest in wrong)):
        with pytest.raises(AssertionError, match=r"\w+ .* \w+"):
            checked(answer)

    for value in (None, [], "text", torch.zeros(2, 7)):
        own = dict(given)
        exec(stubs[number], own)
        make_return(own, stubs[number], value)
        with pytest.raises(AssertionError, match=r"\w+ .* \w+"):
            exec(checks[number], own)


def make_return(names, stub, value):
    """Makes the function, or the method, that a stub defines return a value; a name hold it."""
    for node in ast.parse(stub).body:
        match node:
            case ast.FunctionDef(name=name):
                names[name] = lambda *_, **__: value
            case ast.ClassDef(name=name, body=[*_, ast.FunctionDef(name=method)]):
                setattr(names[name], method, lambda *_, **__: value)
            case ast.Assign(targets=[ast.Name(id=name)]):
                names[name] = value


@pytest.mark.exhaustive
@BY_NAME
def test_a_notebook_runs_and_its_checks_fail_before_the_answer(path, tmp_path):
    command = [sys.executable, ROOT / "scripts" / "course.py", path, f"output={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
