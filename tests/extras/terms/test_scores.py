"""Success, consistency and quality of outputs in three columns."""

import json

import pytest

from seqattn.extras.terms.glossary import Glossary
from seqattn.extras.terms.scores import TermScores, consistency, success
from tests.cli.small import data_of, refusal, succeed


def test_success_counts_terms_and_consistency_repeated_ones():
    terms = [Glossary(entries={"a": ["x", "y"], "b": "z"})] * 4
    sources, outputs = ["a b", "a", "b a", "a c"], ["x", "y", "z x", "q"]
    assert success(terms, sources, outputs) == pytest.approx(100 * 4 / 6)
    # "a" is x, y, x and nothing: 2 of 4; "b" is nothing and z: 1 of 2
    assert consistency(terms, sources, outputs) == pytest.approx(100 * 3 / 6)
    assert success([None, *terms[1:]], sources, outputs) == pytest.approx(100 * 3 / 4)


def test_columns_without_terms_with_right_and_with_random_ones(capfd, trained, corpus, tmp_path):
    rows = [line.split() for line in (corpus / "val.en").read_text().splitlines()]
    links = [" ".join(f"{n}-{n}" for n in range(len(row))) for row in rows]
    (tmp_path / "links").write_text("\n".join(links))
    words = (f"bundle={trained}/model", *data_of(corpus), "split=val", f"links={tmp_path}/links")
    words = (*words, "generation.limit.extra=40")
    told = succeed(capfd, "term_scores", *words, f"output={tmp_path}/a.json", "count=2")
    found = json.loads((tmp_path / "a.json").read_text())
    assert found["terms"] == 2 * found["rows"]
    none, right, random = found["columns"].values()
    assert right["success %"] == random["success of random terms %"] == 100
    assert none["success %"] < 50
    assert random["success %"] < 100
    assert right["BLEU"] >= none["BLEU"]
    assert "no terms" in told
    of_all = [line.split() for line in (corpus / "train.en").read_text().splitlines()]
    of_all = [" ".join(f"{n}-{n}" for n in range(len(row))) for row in of_all]
    (tmp_path / "links").write_text("\n".join(of_all))
    succeed(capfd, "term_scores", *words, "data.hold_out=7", f"output={tmp_path}/b.json")
    assert json.loads((tmp_path / "b.json").read_text())["rows"] == 7
    line = refusal(capfd, "term_scores", *words)
    assert line.startswith(f"links={tmp_path}/links must have one line per pair of the split")
    (tmp_path / "links").write_text("\n".join(links))
    (tmp_path / "g.tsv").write_text("unheard\tthing\n")
    line = refusal(capfd, "term_scores", *words, "terms=glossary", f"terms.file={tmp_path}/g.tsv")
    assert line == "val has no terms; use other links, or another glossary"


def test_what_cannot_be_scored_is_refused_before_the_first_search(
    monkeypatch, capfd, trained, corpus, tmp_path
):
    monkeypatch.setattr(TermScores, "_outputs", None)
    rows = [line.split() for line in (corpus / "val.en").read_text().splitlines()]
    (tmp_path / "one").write_text("\n".join("0-0" for _ in rows))
    (tmp_path / "two").write_text("\n".join("0-0 1-1" for _ in rows))
    words = (f"bundle={trained}/model", *data_of(corpus), "split=val", f"links={tmp_path}/two")
    left = "no linked words are left for random terms; use a smaller count, or more links"
    for changes, line in (
        ([f"links={tmp_path}/one"], left),
        (["count=99"], left),
        ([f"output={tmp_path}"], f"output={tmp_path} is a directory; give a file name"),
        ([f"output={tmp_path}/one/b/c.json"], f"cannot write {tmp_path}/one/b: Not a directory"),
        (["generation=greedy"], "required terms need generation=beam, got GreedySearch; "),
    ):
        assert refusal(capfd, "term_scores", *words, *changes).startswith(line)
    (tmp_path / "model").symlink_to(trained / "model")
    (tmp_path / "g.tsv").write_text("a\tb\n")
    others = ["terms=glossary", f"terms.file={tmp_path}/g.tsv"]
    for name, changes in (("", []), ("-glossary", others)):  # no table replaces the other
        place = tmp_path / "evaluation" / f"terms-val{name}.json"
        place.mkdir(parents=True)
        line = refusal(capfd, "term_scores", *words, f"bundle={tmp_path}/model", *changes)
        assert line == f"output={place} is a directory; give a file name"
