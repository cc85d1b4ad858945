"""The subcommands heads and probe: what they print, write and refuse."""

import json

import pytest

import seqattn
from seqattn.extras.explain.head_importance import pairs_of
from seqattn.extras.explain.head_plots import head_map
from seqattn.subcommands.run_tables import run_tables
from tests.bundle.conftest import configuration, untrained
from tests.cli.small import data_of, refusal, succeed

PNG = b"\x89PNG\r\n"


def test_heads_are_told_drawn_and_taken_out(capfd, trained, tmp_path, monkeypatch):
    titles = []

    def drawn(attentions, title):
        titles.append(title)
        return head_map(attentions, title)

    monkeypatch.setattr("seqattn.extras.explain.heads.head_map", drawn)
    given = (f"bundle={trained}/model", f"output={tmp_path}/heads", "sentences=6", "points=3")
    out = succeed(capfd, "heads", *given, "generation=greedy")
    assert titles == [f"heads of {trained.parent.name}/run/model"]
    found = json.loads((tmp_path / "heads" / "heads.json").read_text())
    slots = ("encoder", "decoder", "cross")
    places = [out.index(f"│ {slot} 1.{head} ") for slot in slots for head in range(1, 5)]
    assert places == sorted(places)
    attentions = found["attentions"]
    assert [(one["slot"], one["layer"], one["reasons"]) for one in attentions.values()] == [
        ("encoder", 1, []),
        ("decoder", 1, []),
        ("cross", 1, []),
    ]
    for attention in attentions.values():
        assert sum(head["importance"] ** 2 for head in attention["heads"]) == pytest.approx(1)
        assert all(head["entropy"] > 0 for head in attention["heads"])
    curve = found["ablation"]
    assert curve["out"] == [0, 4, 8, 12]
    runs = [curve["by_importance"], *curve["at_random"]]
    assert len(runs) == 4
    assert {(run[0], run[-1]) for run in runs} == {(runs[0][0], runs[0][-1])}
    assert "BLEU by number of heads removed" in out
    tables = {table["title"]: table for table in run_tables(trained)}
    ablation, heads = tables["BLEU by number of heads removed"], tables["Heads on val"]
    assert ablation["rows"][0] == ["least important first", *(round(x, 2) for x in runs[0])]
    numbers = dict(zip(heads["columns"], zip(*heads["rows"], strict=True), strict=True))
    assert list(zip(numbers["attention"], numbers["head"], strict=True)) == [
        (name, str(head)) for name in attentions for head in range(1, 5)
    ]
    told = [head for attention in attentions.values() for head in attention["heads"]]
    roles = [role.partition(" ")[0] for role in numbers["role"]]
    assert roles == [head["role"] for head in told]
    assert numbers["mark"] == tuple(round(head["mark"], 2) for head in told)
    for name in ("heads", "ablation"):
        assert (tmp_path / "heads" / f"{name}.png").read_bytes().startswith(PNG)


def test_rows_with_an_empty_side_are_left_out(trained):
    bundle = seqattn.load(f"{trained}/model")
    pairs = pairs_of(bundle, ["", "a dog", "a cat"], ["ein Hund", "", "eine Katze"])
    assert [pair.source for pair in pairs] == bundle.encode(["a cat"])[0]


def test_heads_of_spans_are_refused(capfd, answering, tmp_path):
    text = refusal(capfd, "heads", f"bundle={answering}/model", f"output={tmp_path}/heads")
    assert text.startswith("heads needs a bundle that outputs text, ")


def test_heads_of_a_model_without_attention_are_refused(capfd, trained, corpus, tmp_path):
    known = seqattn.load(f"{trained}/model")
    untrained(tmp_path / "none", known.tokenizer, configuration("rnn", attention="none"))
    given = (f"bundle={tmp_path}/none", *data_of(corpus), f"output={tmp_path}/heads")
    text = refusal(capfd, "heads", *given)
    assert text.endswith("has no attention; use a model with attention")


def test_labels_are_probed_layer_by_layer(capfd, trained, corpus, tmp_path):
    lines = (corpus / "test.en").read_text().splitlines()
    labels = tmp_path / "labels"
    tags = [" ".join(f"L{len(word)}" for word in line.split()) for line in lines]
    labels.write_text("\n".join(tags))
    given = (f"bundle={trained}/model", f"labels={labels}", f"output={tmp_path}/probe.json")
    out = succeed(capfd, "probe", *given)
    found = json.loads((tmp_path / "probe.json").read_text())["probe"]
    assert list(found["layers"]) == ["embedding", "layer 1"]
    for row in found["layers"].values():
        assert row["selectivity"] == pytest.approx(row["accuracy"] - row["control"])
    assert found["layers"]["embedding"]["accuracy"] > found["majority"]
    assert "linear probe of" in out
    of_all = (corpus / "train.en").read_text().splitlines()
    labels.write_text("".join(f"{line}\n" for line in of_all))
    held_out = (*given[:2], "data.hold_out=20", "split=val")
    assert "linear probe of" in succeed(capfd, "probe", *held_out)
    labels.write_text("\n".join(of_all[1:]))
    line = refusal(capfd, "probe", *held_out)
    assert line.endswith("got 59 lines for 20 pairs, or 60 with those of other splits")
    labels.write_text("L1\n" * len(lines))
    text = refusal(capfd, "probe", *given[:2])
    assert f"{labels} line 1 has 1 labels for" in text
    labels.write_bytes(b"L1 \xff\n")
    assert "is not valid UTF-8" in refusal(capfd, "probe", *given[:2])
    labels.write_text("L1\n")
    assert f"{labels} has 1 lines for {len(lines)} sentences" in refusal(capfd, "probe", *given[:2])


def test_a_word_has_its_neighbors_in_two_sentences(capfd, trained, tmp_path):
    texts = 'texts=["a dog sees a ball .","the ball hears two birds ."]'
    given = (f"bundle={trained}/model", "word=ball", "neighbors=2", f"output={tmp_path}/p.json")
    out = succeed(capfd, "probe", *given, texts)
    found = json.loads((tmp_path / "p.json").read_text())["neighbors"]
    assert found["places"] == ["a dog sees a ball .", "the ball hears two birds ."]
    layers = found["layers"]
    assert list(layers) == ["embedding", "layer 1, attention", "layer 1, uniform attention"]
    assert len({of["cosine"] for of in layers.values()}) == 3
    assert all(len(near) == 2 for of in layers.values() for near in of["neighbors"])
    assert "BALL" in out
    given = (given[0], "word=犬", 'texts=["a 犬 sees a ball .","the 犬 hears two birds ."]')
    assert refusal(capfd, "probe", *given).startswith(
        "word=犬 has characters that the vocabulary l"
    )
