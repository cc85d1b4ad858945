"""What a page says of a run is what its files say."""

import json

import pytest

from seqattn.errors import UserError
from seqattn.extras.report.run_document import flat, learning_curves, saved_scores
from seqattn.subcommands.run_tables import run_tables
from seqattn.training.measurements import read_figures

TABLE = {"title": "roles", "columns": ["head", "role", "share"], "rows": [["1", None, 0.5]]}


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def test_curves_are_the_columns_of_the_csv_with_numbers_without_gaps_and_final_scores(
    tmp_path,
):
    rows = (
        "epoch,final/val/bleu,step,train/loss,val/loss,val/nll,train/seconds_left\n"
        "0,,1,3.5,,nan,9\n0,,2,,nan,inf,8\n0,,3,2.5,4,,7\n1,9,3,,,,\n"
    )
    write(tmp_path / "csv" / "version_0" / "metrics.csv", rows)
    assert learning_curves(read_figures(tmp_path)) == [
        {"name": "train/loss", "steps": [1, 3], "values": [3.5, 2.5]},
        {"name": "val/loss", "steps": [3], "values": [4.0]},
        {"name": "final/val/bleu", "steps": [3], "values": [9.0]},
    ]
    assert learning_curves(read_figures(tmp_path / "nowhere")) == []


def test_a_long_curve_keeps_at_most_400_points_and_its_last():
    rows = [{"step": str(step), "train/loss": str(step / 2)} for step in range(1002)]
    [curve] = learning_curves(rows)
    assert curve["steps"] == list(range(1001, -1, -3))[::-1]
    assert curve["values"] == [step / 2 for step in curve["steps"]]


def test_scores_stand_with_their_signatures():
    assert saved_scores({"val/bleu": 9, "val/bleu signature": "tok:13a", "val/loss": 1.5}) == [
        {"name": "val/bleu", "value": 9.0, "signature": "tok:13a"},
        {"name": "val/loss", "value": 1.5, "signature": ""},
    ]


def test_a_configuration_is_told_by_dotted_keys():
    node = {"a": {"_target_": "x.y.Z", "b": [1, 2]}, "c": [{"d": None}]}
    assert flat(node) == {"a._target_": "Z", "a.b": "[1, 2]", "c.0.d": "None"}


def test_tables_beside_a_bundle_are_read_in_the_order_of_their_names(tmp_path):
    write(tmp_path / "tables" / "b.json", {**TABLE, "notes": ["x"]})
    write(tmp_path / "tables" / "a.json", {**TABLE, "title": "first"})
    found = run_tables(tmp_path)
    assert [table["title"] for table in found] == ["first", "roles"]
    assert found[1] == {**TABLE, "notes": ["x"]}
    assert run_tables(tmp_path / "nowhere") == []


@pytest.mark.parametrize("content", ["{", "[]", {**TABLE, "rows": 5}, {"title": "x"}])
def test_what_is_no_table_is_refused_by_its_name(tmp_path, content):
    write(tmp_path / "tables" / "a.json", content)
    with pytest.raises(UserError, match=r"a\.json is not a table"):
        run_tables(tmp_path)


def test_a_row_with_other_cells_than_columns_is_refused(tmp_path):
    write(tmp_path / "tables" / "a.json", {**TABLE, "rows": [["1"]]})
    with pytest.raises(UserError, match="one cell per column"):
        run_tables(tmp_path)
