"""A bundle that version 0.1.0 wrote is still read, and the page quotes what is refused.

If a change breaks this, raise `FORMAT` and say so in the changelog; do not write the bundle anew.
"""

import shutil
from pathlib import Path

import pytest
import yaml

import seqattn
from seqattn.bundle.files import read_config
from seqattn.errors import UserError
from seqattn.settings.documents import FORMAT
from seqattn.training.resume import settings_before
from tests.pages import PAGES

EARLIER = Path(__file__).parent / "bundle"
PROMISE = PAGES["configuration.md"].split("## Bundles and later versions\n")[1].split("\n## ")[0]


def test_a_bundle_of_an_earlier_version_gives_the_same_output():
    [[hypothesis]] = seqattn.load(EARLIER).hypotheses(["He buys these books."], "greedy")
    assert hypothesis.ids == (4,) * 35
    assert hypothesis.score == pytest.approx(-2.41002764, rel=1e-4)


def test_a_bundle_that_held_out_equal_pairs_alone_still_does(tmp_path):
    shutil.copytree(EARLIER, tmp_path / "model")
    file = tmp_path / "model" / "config.yaml"
    config = yaml.safe_load(file.read_text(encoding="utf-8"))
    for kind, sizes, rule in (
        ("ParallelText", {"hold_out": 4}, "pair"),
        ("Table", {"hold_out_test": 0.1}, "pair"),
        ("Table", {"hold_out": 4, "hold_out_by": "source"}, "source"),
        ("Table", {"hold_out": 0}, None),
    ):
        config["data"] = {"_type_": kind, **sizes}
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        assert read_config(file.parent)["data"].get("hold_out_by") == rule


def test_the_page_names_the_format_and_quotes_how_another_is_refused(tmp_path):
    shutil.copytree(EARLIER, tmp_path / "model")
    config = tmp_path / "model" / "config.yaml"
    config.write_text(config.read_text(encoding="utf-8").replace(FORMAT, "seqattn bundle 3"))
    with pytest.raises(UserError) as refused:
        seqattn.load(tmp_path / "model")
    assert f"`format: {FORMAT}`" in PROMISE
    assert str(refused.value).replace(f"{config}", "RUN/model/config.yaml") in PROMISE


def test_the_page_quotes_how_a_run_of_another_version_is_refused(tmp_path):
    (tmp_path / "config.yaml").write_text("format: seqattn run 0\n", encoding="utf-8")
    with pytest.raises(UserError) as refused:
        settings_before(tmp_path, "run_dir=RUN")
    assert str(refused.value).replace(f"={tmp_path}", "=RUN") in PROMISE
