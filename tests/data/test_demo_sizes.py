"""Each bundled corpus is as large as the table of its README says."""

import json
import re

import pytest

from tests.pages import ROOT


def rows_of(path):
    if path.suffix != ".json":
        return len(path.read_text(encoding="utf-8").splitlines())
    return sum(len(article["paragraphs"]) for article in json.loads(path.read_text())["data"])


@pytest.mark.parametrize(
    ("name", "files"),
    [("demo_qa", "*.json"), ("demo_summarization", "*.jsonl"), ("demo_translation", "*.[ed][ne]")],
)
def test_a_corpus_has_as_many_rows_as_its_readme_says(name, files):
    folder = ROOT / "data" / name
    table = re.findall(r"^\| `(\w+)` \| ([\d,]+) \|", (folder / "README.md").read_text(), re.M)
    told = {part: int(count.replace(",", "")) for part, count in table}
    assert set(told) == {"train", "val", "test"}
    for path in folder.glob(files):
        assert rows_of(path) == told[path.stem], path
