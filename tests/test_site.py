"""The documentation site builds without a warning, and its reference has every key of `conf/`."""

import json
import re
import subprocess
import sys

import pytest
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from seqattn.installation import CONF
from tests.browser import browser  # noqa: F401
from tests.cli.small import groups
from tests.pages import ROOT

pytest.importorskip("mkdocs", reason="needs .[docs]")
pytest.importorskip("mkdocstrings_handlers", reason="needs .[docs]")
pytestmark = pytest.mark.exhaustive
NOTEBOOKS = sorted((ROOT / "docs" / "course").glob("*.ipynb"))
CHOICES = [(group, choice) for group, choices in groups().items() for choice in choices]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site; links and anchors are checked by `--strict`."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def keys_of(node, place=""):
    """The keys of the values in a node, with dots."""
    if not isinstance(node, dict) or not node:
        yield place
        return
    for name, part in node.items():
        if name not in ("defaults", "hydra") and not name.startswith("_"):
            yield from keys_of(part, f"{place}.{name}".lstrip("."))


def node_of(group, choice):
    """The values that a choice sets, composed by Hydra for a choice of one group's keys."""
    file = CONF / group / f"{choice}.yaml"
    if "# @package _global_" in file.read_text(encoding="utf-8"):
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    subcommand = "train" if group in (CONF / "train.yaml").read_text("utf-8") else "evaluate"
    several = group in ("callbacks", "logger", "processor")
    with initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
        config = compose(subcommand, [f"{group}=[{choice}]" if several else f"{group}={choice}"])
    settings = OmegaConf.to_container(config)
    if group == "processor":
        return {"generation": {"processors": settings["generation"]["processors"]}}
    return {group: settings[group]}


def without_meaning(page):
    """The keys with an empty last cell, except those that only have keys of their own."""
    rows = re.findall(r'<tr id="(.*?)">.*?</td><td>(.*?)</td><td>.*?</td><td></td></tr>', page)
    return [key for key, values in rows if not values.startswith("keys of ")]


@pytest.mark.parametrize(("group", "choice"), CHOICES)
def test_every_key_of_a_choice_is_in_the_reference(site, group, choice):
    page = (site / f"reference/configuration/{group}.html").read_text(encoding="utf-8")
    assert f'id="{choice}"' in page
    keys = {key for key in keys_of(node_of(group, choice)) if "." in key}
    assert {key for key in keys if f'id="{choice}.{key}"' not in page} == set()
    assert without_meaning(page) == []


@pytest.mark.parametrize("file", sorted(CONF.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_key_of_a_command_is_in_the_reference(site, file):
    page = (site / f"reference/commands/{file.stem}.html").read_text(encoding="utf-8")
    keys = set(keys_of(yaml.safe_load(file.read_text(encoding="utf-8"))))
    assert {key for key in keys if f'id="{file.stem}.{key}"' not in page} == set()
    assert without_meaning(page) == []


def test_a_key_has_its_values_default_and_meaning(site):
    page = (site / "reference/configuration/attention.html").read_text(encoding="utf-8")
    row = re.search(r'<tr id="gqa.attention.num_kv_heads">(.*)</tr>', page)[1]
    cells = [re.sub("<.*?>", "", cell) for cell in re.findall("<td>(.*?)</td>", row)]
    assert cells == [
        "attention.num_kv_heads",
        "a whole number from 1 to 1,000,000,000",
        "2",
        "heads of keys and values; divides num_heads",
    ]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_notebook_has_drawn_formulas_its_outputs_and_folded_answers(site, notebook):
    page = (site / "course" / f"{notebook.stem}.html").read_text(encoding="utf-8")
    book = notebook.read_text(encoding="utf-8")
    cells = json.loads(book)["cells"]
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    assert "arithmatex" not in page
    assert ('class="formula' in page) == any("$" in re.sub("`.*?`", "", text) for text in texts)
    assert page.count("<summary>Answer</summary>") == book.count('"answer"')
    pictures = {path.name for path in (notebook.parent / "outputs").glob(f"{notebook.stem}*.png")}
    assert {*re.findall('src="outputs/(.*?)"', page)} == pictures
    assert pictures <= {path.name for path in (site / "course" / "outputs").iterdir()}


def test_no_page_loads_anything_from_elsewhere(site):
    loads = re.compile(r'<(?:script|img|iframe)[^>]*src="(?:https?:)?//|<link[^>]*href="https?://')
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 50
    assert [page for page in pages if loads.search(page.read_text(encoding="utf-8"))] == []


def test_the_walkthrough_computes_its_first_sentence(site, browser):  # noqa: F811
    home = (site / "index.html").read_text(encoding="utf-8")
    browser.open(site / "walkthrough.html")
    browser.wait("return document.getElementById('walk')?.dataset.shown !== undefined")
    names = "return Array.from(document.querySelectorAll(arguments[0]), (one) => one.textContent)"
    for name in browser.run(names, "#walk-encoder .walk-name")[:-1]:
        assert f">{name}</text>" in home
    assert browser.errors() == []


def test_no_table_is_wider_than_a_telephone(site, browser):  # noqa: F811
    browser.resize(400)
    script = """const wide = (one) => one.scrollWidth > one.parentElement.clientWidth + 1;
    const tables = document.querySelectorAll(".md-content .md-typeset__table > table");
    return [tables.length, Array.from(tables).filter(wide).length];"""
    seen = 0
    for page in sorted(site.rglob("*.html")):
        browser.open(page)
        count, wide = browser.run(script)
        assert (page, wide) == (page, 0)
        seen += count
    assert seen > 50
