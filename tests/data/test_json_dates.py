"""Texts of JSON that look like dates are texts; tables without rows."""

import json

import pandas as pd
import pytest

from seqattn.data.table import Table
from tests.data.source_helpers import refusal

DATES = ["1978-10-28", "2018-02-09", "2001-02-03T04:05:06", "1999-12-31 23:59:59"]
ROWS = [
    {
        "source": f"day {number}" if number else date,
        "target": date,
        "references": [date, "1990-01-01"],
        "nested": {"day": date},
        "number": number,
    }
    for number, date in enumerate(DATES)
]


@pytest.fixture(params=["t.jsonl", "t.json", "lines.json"])
def path(request, tmp_path):
    write(file := tmp_path / request.param, ROWS)
    return file


def write(path, rows):
    path.write_text(json.dumps(rows) if path.name == "t.json" else "\n".join(map(json.dumps, rows)))


@pytest.mark.parametrize("rows", [ROWS, ROWS[:2], [*ROWS, {**ROWS[0], "target": "n/a"}]])
def test_dates_come_as_they_are_written(path, rows, tmp_path):
    write(path, rows)
    table = Table({"train": str(path)}, references_column="references")
    found = table.load("train", tmp_path / "cache")
    assert list(found["target"]) == [row["target"] for row in rows]
    assert list(found["references"]) == [row["references"] for row in rows]
    assert list(table.stream("train")) == [(row["source"], row["target"]) for row in rows]


def test_nested_dates_are_texts_and_numbers_are_none(path, tmp_path):
    nested = Table({"train": str(path)}, source_column="nested.day", target_column="target")
    assert list(nested.load("train", tmp_path / "cache")["source"]) == DATES
    assert [source for source, _ in nested.stream("train")] == DATES


def test_files_with_and_without_other_texts_go_together(tmp_path):
    for name, target in (("a", "2001-02-03"), ("b", "n/a")):
        row = json.dumps({"source": name, "target": target})
        (tmp_path / f"{name}.jsonl").write_text(row + "\n")
    table = Table({"train": [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]})
    found = table.load("train", tmp_path / "cache")
    assert list(found["target"]) == ["2001-02-03", "n/a"]
    assert [target for _, target in table.stream("train")] == ["2001-02-03", "n/a"]


def test_a_row_without_a_column_among_dates_has_an_empty_text(tmp_path):
    rows = [{"source": "a", "target": "2001-02-03"}, {"target": "2001-02-04"}]
    path = tmp_path / "t.jsonl"
    path.write_text("\ufeff" + "\n\n".join(map(json.dumps, rows)))
    table = Table({"train": str(path)})
    assert list(table.load("train", tmp_path / "cache")["source"]) == ["a", ""]
    assert [source for source, _ in table.stream("train")] == ["a", ""]


@pytest.mark.parametrize("columns", [["source", "target"], []])
def test_a_parquet_file_without_rows_is_said_to_have_none(tmp_path, columns):
    path = tmp_path / "t.parquet"
    pd.DataFrame({column: pd.Series([], dtype=str) for column in columns}).to_parquet(path)
    table = Table({"train": str(path)})
    for read in (lambda: table.load("train", tmp_path / "cache"), lambda: [*table.stream("train")]):
        assert refusal(read) == f"{path} has no rows"
