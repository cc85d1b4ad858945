"""An installed package carries the configuration and the bundled corpora with it."""

from pathlib import Path

import pytest

from seqattn import places
from seqattn.places import shipped

ROOT = Path(__file__).parents[1]


def test_in_a_checkout_they_stand_beside_the_package():
    assert shipped("conf") == ROOT / "conf"
    assert (shipped("data") / "demo_qa" / "train.json").is_file()


def test_once_installed_they_are_inside_it_whatever_stands_beside(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()  # of another package
    monkeypatch.setattr(places, "_PACKAGE", tmp_path / "seqattn")
    assert shipped("data") == tmp_path / "seqattn" / "shipped" / "data"


def test_a_wheel_is_told_of_every_folder_that_the_package_reads():
    tomllib = pytest.importorskip("tomllib")  # from Python 3.11 on
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    told = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    corpora = [f"data/{path.name}" for path in (ROOT / "data").glob("demo_*")]
    assert told == {name: f"seqattn/shipped/{name}" for name in ["conf", *corpora]}
