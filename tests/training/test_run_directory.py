"""Directories of runs, and what they are called beside each other."""

from pathlib import Path

import pytest

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
