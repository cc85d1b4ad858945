"""Directories of runs, and what they are called beside each other."""

from pathlib import Path

import pytest

from seqattn.errors import UserError
from seqattn.extras.explain.explain import Explaining
from seqattn.extras.explain.heads import HeadAnalysis
from seqattn.extras.explain.probe import Probing
from seqattn.generation import GreedySearch
from seqattn.training.run_directory import distinct_names


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["runs/a/model", "runs/b/model"], ["a", "b"]),
        (["/a/study/one/model", "/b/two/model"], ["a/study/one", "b/two"]),
        (["/runs/a", "runs/a"], ["/runs/a", "runs/a"]),
    ],
)
def test_runs_are_named_by_what_tells_their_paths_apart(paths, names):
    assert distinct_names([Path(path) for path in paths]) == names


HERE = {"data": None, "bundle": "none"}
WHERE_NOTHING_CAN_BE_WRITTEN = {
    "heads": lambda file: HeadAnalysis(
        **HERE, output=str(file), generation=GreedySearch(), scorer=None
    ),
    "explain": lambda file: Explaining(**HERE, output=str(file), generation=GreedySearch()),
    "probe": lambda file: Probing(**HERE, output=str(file / "a.json"), word="bank"),
    "probe, a folder": lambda file: Probing(**HERE, output=str(file.parent), word="bank"),
}


@pytest.mark.parametrize("command", WHERE_NOTHING_CAN_BE_WRITTEN)
def test_where_nothing_can_be_written_nothing_is_measured(command, tmp_path):
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    with pytest.raises(UserError, match=r"cannot write .*file|output must be a file such as"):
        WHERE_NOTHING_CAN_BE_WRITTEN[command](file).run()
