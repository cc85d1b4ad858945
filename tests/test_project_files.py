"""What a contributor reads, and what runs for them elsewhere, agrees with the project."""

import re
import tomllib
from collections import Counter

import pytest
import yaml

from tests.pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
GUIDES = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def loaded(path):
    """A YAML file, without making a boolean of the key `on`."""
    return yaml.load((ROOT / path).read_text(encoding="utf-8"), yaml.BaseLoader)


def heading_ids(text):
    """The ids that GitHub gives to the headings of a page."""
    headings = re.findall(r"(?m)^#+ (.*)$", text)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in headings}


@pytest.mark.parametrize("guide", GUIDES)
def test_every_link_of_a_guide_leads_to_a_file_and_a_heading(guide):
    text = (ROOT / guide).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    assert links
    for link in links:
        file, _, heading = link.partition("#")
        target = ROOT / (file or guide)
        assert target.exists(), link
        assert not heading or heading in heading_ids(target.read_text(encoding="utf-8")), link


def test_contributing_names_folders_commands_and_versions_that_are_there():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    folders = re.findall(r"`((?:seqattn|conf|tests|docs)/[\w./]+)`", text)
    places = {name for name in folders if "NAME" not in name and "FOLDER" not in name}
    assert len(places) > 15
    assert [name for name in places if not (ROOT / name).exists()] == []
    made = re.findall(r"(?m)^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert set(re.findall(r"`make (\w+)`", text)) <= {*made}


def test_the_workflows_have_what_their_steps_name():
    jobs = loaded(".github/workflows/checks.yml")["jobs"]
    pythons = jobs["test"]["strategy"]["matrix"]["python"]
    assert pythons[0] == PROJECT["requires-python"].removeprefix(">=")
    assert jobs["elsewhere"]["continue-on-error"] == "true"
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for job in loaded(path)["jobs"].values():
            assert int(job["timeout-minutes"]) > 0
            assert all("uses" in step or "run" in step for step in job["steps"])


def test_each_test_file_is_in_one_part_of_the_night():
    job = loaded(".github/workflows/nightly.yml")["jobs"]["exhaustive"]
    words = " ".join(job["strategy"]["matrix"]["part"]).split()
    paths = [path for word in words for path in ROOT.glob(word)]
    files = Counter(f for path in paths for f in (path, *path.rglob("*")) if f.match("test_*.py"))
    assert files == Counter((ROOT / "tests").rglob("test_*.py"))


def test_the_hook_formats_as_make_does():
    [ruff] = [repo for repo in loaded(".pre-commit-config.yaml")["repos"] if "ruff" in repo["repo"]]
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert f"ruff=={ruff['rev'].removeprefix('v')}" in pins


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_has_what_github_asks_for(path):
    form = loaded(path)
    assert form.keys() <= {"name", "description", "labels", "body"}
    assert form["name"]
    assert form["description"]
    asked = [field for field in form["body"] if field["type"] != "markdown"]
    ids = [field["id"] for field in asked]
    assert len({*ids}) == len(ids) > 0
    assert all(field["type"] in ("input", "textarea") for field in asked)
    assert all(field["attributes"]["label"] for field in asked)


def test_the_citation_is_of_this_project():
    citation = loaded("CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["license"] == PROJECT["license"]
    assert citation["keywords"] == PROJECT["keywords"]
