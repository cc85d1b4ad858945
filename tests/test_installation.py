"""An installed package carries the configuration and the bundled corpora with it."""

import re
import tomllib
from pathlib import Path

from seqattn import installation
from seqattn.cli.help_page import help_page
from seqattn.installation import shipped

ROOT = Path(__file__).parents[1]


def test_in_a_checkout_they_stand_beside_the_package():
    assert shipped("conf") == ROOT / "conf"
    assert (shipped("data") / "demo_qa" / "train.json").is_file()


def test_once_installed_they_are_inside_it_whatever_stands_beside(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()  # of another package
    monkeypatch.setattr(installation, "_PACKAGE", tmp_path / "seqattn")
    assert shipped("data") == tmp_path / "seqattn" / "shipped" / "data"


def test_a_missing_extra_is_installed_from_the_checkout_or_by_our_name(tmp_path, monkeypatch):
    assert installation.install("serve") == (
        "run pip install -c constraints.txt -e '.[serve]' in the checkout"
    )
    monkeypatch.setattr(installation, "_PACKAGE", tmp_path / "seqattn")
    assert installation.install("serve") == "run pip install 'seqattn-toolkit[serve]'"


def test_commands_name_scripts_only_where_there_are_scripts(tmp_path, monkeypatch):
    text = "python scripts/evaluate.py bundle=B\npython train.py name=python"
    assert installation.commands(text) == text
    assert "python scripts/evaluate.py bundle" in help_page("evaluate", [])
    monkeypatch.setattr(installation, "_PACKAGE", tmp_path / "seqattn")
    assert installation.commands(text) == "seqattn evaluate bundle=B\nseqattn train name=python"
    page = help_page("evaluate", [])
    assert "seqattn evaluate bundle=RUN/model split=val" in page
    assert ".py" not in page


def test_every_extra_that_a_message_names_is_there_and_extras_name_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    code = [*(ROOT / "seqattn").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    named = {
        name
        for file in code
        for name in re.findall(r"""install\(["'](\w+)["']\)""", file.read_text(encoding="utf-8"))
    }
    assert {"serve", "search", "compare", "explain", "export", "8bit", "bench"} <= named
    assert named | {"sweep", "slurm"} <= extras.keys()  # the last two by launcher
    for needed in [need for needs in extras.values() for need in needs if "[" in need]:
        name, inner = needed.rstrip("]").split("[")
        assert name == project["name"] == "seqattn-toolkit"
        assert set(inner.split(",")) <= extras.keys()


def test_a_wheel_is_told_of_every_folder_that_the_package_reads():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    told = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    corpora = [f"data/{path.name}" for path in (ROOT / "data").glob("demo_*")]
    assert told == {name: f"seqattn/shipped/{name}" for name in ["conf", *corpora]}
