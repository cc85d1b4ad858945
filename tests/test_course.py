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


# Of each exercise that needs no training: right answers in other ways than ours, and wrong ones.
DOT = "def luong_dot(s, h): return "
MASKED = "def masked_weights(scores, real): return "
EDITS = "def edits(output, right): return "
PATHS = "def all_paths(move, say):"
ANSWERS = {
    ("01", 0): (
        [
            DOT + "torch.softmax(torch.einsum('td,sd->ts', s, h), dim=1)",
            DOT + "torch.stack([(h @ one).softmax(0) for one in s])",
            DOT + "(e := (s @ h.mT).exp()) / e.sum(1, keepdim=True)",
        ],
        [
            DOT + "s @ h.T",
            DOT + "(s @ h.T).softmax(dim=0)",
            DOT + "(s @ h.T / 8 ** 0.5).softmax(dim=-1)",
        ],
    ),
    ("01", 1): (
        [
            MASKED + "torch.where(real[:, None], scores, float('-inf')).softmax(-1)",
            MASKED + "(e := scores.exp() * real[:, None]) / e.sum(-1, keepdim=True)",
            MASKED + "(scores + real[:, None].float().log()).softmax(dim=2)",
        ],
        [
            MASKED + "scores.softmax(dim=-1) * real[:, None]",
            MASKED + "scores.masked_fill(~real[:, None], 0.0).softmax(dim=-1)",
            MASKED + "scores.masked_fill(real[:, None], -torch.inf).softmax(dim=-1)",
        ],
    ),
    ("07", 0): (
        [
            EDITS
            + "int(WordScorer('symbols').score([' '.join(output)], [' '.join(right)])[2].value)",
            EDITS + "max(len(output), len(right)) if not (output and right) else min("
            "edits(output[1:], right[1:]) + (output[0] != right[0]), "
            "edits(output[1:], right) + 1, edits(output, right[1:]) + 1)",
            "def edits(output, right):\n    row = [*range(len(right) + 1)]\n"
            "    for i, a in enumerate(output):\n        before, row = row, [i + 1]\n"
            "        for j, b in enumerate(right):\n"
            "            row.append(min(before[j] + (a != b), before[j + 1] + 1, row[j] + 1))\n"
            "    return row[-1]",
        ],
        [
            EDITS + "sum(map(str.__ne__, output, right)) + abs(len(output) - len(right))",
            EDITS + "abs(len(output) - len(right))",
            EDITS + "len(set(output) ^ set(right))",
        ],
    ),
    ("07", 1): (
        [
            PATHS + " return (torch.linalg.multi_dot([m * s for m, s in zip(move, say)])[0]).sum()",
            PATHS + "\n    rest = torch.ones(say.shape[1])\n"
            "    for m, s in zip(move.flip(0), say.flip(0)):\n        rest = m @ (s * rest)\n"
            "    return rest[0]",
            PATHS + "\n    reached = (move[0, 0] * say[0]).log()\n"
            "    for m, s in zip(move[1:], say[1:]):\n"
            "        reached = (reached[:, None] + m.log()).logsumexp(0) + s.log()\n"
            "    return reached.exp().sum()",
        ],
        [PATHS + " pass", PATHS + " return say.prod()", PATHS + " return say.sum(1).prod()"],
    ),
}


@pytest.mark.parametrize(("name", "number"), ANSWERS, ids=lambda part: str(part))
def test_a_check_accepts_right_answers_and_names_what_is_wrong(name, number):
    [path] = [path for path in NOTEBOOKS if path.name.startswith(name)]
    cells = [cell for cell in read(path)["cells"] if cell["cell_type"] == "code"]
    first = "".join(cells[0]["source"]).replace("%matplotlib inline", "")
    checks = ["".join(cell["source"]) for cell in cells if "check" in tags(cell)]
    ours = ["".join(cell["source"]) for cell in cells if "answer" in tags(cell)]

    def checked(answer):
        given = dict[str, object]()
        for code in (first, *ours[:number], *checks[:number], answer, checks[number]):
            exec(compile(code, path.name, "exec"), given)

    right, wrong = ANSWERS[name, number]
    for answer in (ours[number], *right):
        checked(answer)
    for answer in wrong:
        with pytest.raises(AssertionError, match=r"\w+ .* \w+"):
            checked(answer)


@pytest.mark.exhaustive
@BY_NAME
def test_a_notebook_runs_and_its_checks_fail_before_the_answer(path, tmp_path):
    command = [sys.executable, ROOT / "scripts" / "course.py", path, f"output={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
