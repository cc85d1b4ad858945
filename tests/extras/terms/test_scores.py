"""Success, consistency and quality of outputs in three columns."""

import json

import pytest

from seqattn.extras.terms.glossary import Glossary
from seqattn.extras.terms.scores import consistency, success
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
    (tmp_path / "g.tsv").write_text("unheard\tthing\n")
    line = refusal(capfd, "term_scores", *words, "terms=glossary", f"terms.file={tmp_path}/g.tsv")
    assert line == "val has no terms; use other links, or another glossary"
