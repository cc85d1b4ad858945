"""What is dropped from a corpus, what is counted, and the report of both."""

import json

import numpy as np
import pytest
import yaml

from seqattn.data.table import Table
from seqattn.errors import UserError
from seqattn.extras.clean import clean as module
from seqattn.extras.clean import scores
from seqattn.extras.clean.clean import CleanedCorpus
from seqattn.extras.clean.content import addresses_of, is_in, numbers_of, usual_scripts
from seqattn.extras.clean.rules import CorpusCleaning
from seqattn.extras.clean.scores import PairScores
from seqattn.settings.nodes import build
from tests.growth import SIGNS, grows

GOOD = [
    ("The dog sees a cat.", "Der Hund sieht eine Katze."),
    ("She buys 3 books.", "Sie kauft 3 Bücher."),
    ("A cat!", "Eine Katze!"),
    ("42", "42"),
    ("The old house is here.", "Das alte Haus ist hier."),
    (
        "We often see that they do not want to go to the town.",
        "Wir sehen oft, dass sie nicht in die Stadt wollen.",
    ),
    (
        "His sister has painted the picture that hangs there.",
        "Seine Schwester hat das Bild gemalt, das dort hängt.",
    ),
]
SPOILED = {
    "empty side": [("The man sleeps.", " ")],
    "identical sides": [("The boy runs home.", "the boy RUNS home.")],
    "length ratio above 9": [("No.", "Nein, das kann man so wirklich nicht sagen.")],
    "bad encoding": [("A tree\ufffd.", "Ein Baum.")],
    "duplicate pair": [GOOD[0]],
    "numbers differ": [("He has 4 birds.", "Er hat 5 Vögel.")],
    "addresses differ": [("See www.a.org for it.", "Siehe www.b.org dafür.")],
    "other script": [("The man is here.", "Он тут.")],
}
VAL = [("The woman sings.", "Die Frau singt."), ("Is it?", "Ist es das?")]


@pytest.fixture
def cleaned(tmp_path):
    """What is left of pairs, cleaned with some rules, and the directory."""

    def run(train=None, output="out", **rules):
        train = train or [*GOOD, *(pair for pairs in SPOILED.values() for pair in pairs)]
        for split, pairs in (("train", train), ("val", VAL)):
            rows = [{"source": s, "target": t, "references": [t, f"{t}!"]} for s, t in pairs]
            text = "\n".join(map(json.dumps, rows))
            (tmp_path / f"{split}.jsonl").write_text(text, encoding="utf-8")
        files = {split: str(tmp_path / f"{split}.jsonl") for split in ("train", "val")}
        data = Table(files, references_column="references")
        directory = CleanedCorpus(
            data=data,
            output=str(tmp_path / output),
            clean=CorpusCleaning(**rules),
            cache_dir=str(tmp_path / "cache"),
        ).run()
        lines = (directory / "train.jsonl").read_text(encoding="utf-8").splitlines()
        rows = map(json.loads, lines)
        return [(row["source"], row["target"]) for row in rows], directory

    return run


def test_each_rule_drops_its_pairs_and_the_report_shows_them(cleaned, capsys, tmp_path):
    pairs, directory = cleaned(drop=["numbers", "addresses", "script"])
    assert pairs == GOOD
    report = (directory / "report.md").read_text(encoding="utf-8")
    out = capsys.readouterr().out
    for name, [(source, target)] in SPOILED.items():
        assert f"dropped: {name}" in out
        section = report.partition(f"## {name}\n")[2].partition("\n## ")[0]
        shown = " ".join(source.split()), " ".join(target.split())
        assert all(f"    {text}\n" in section for text in shown)
    node = yaml.safe_load((directory / "data" / "cleaned.yaml").read_text())
    rows = build(node, "data").load("val", tmp_path / "other")
    assert list(rows["target"]) == [target for _, target in VAL]
    assert rows["references"][0] == ["Die Frau singt.", "Die Frau singt.!"]


def test_what_is_not_dropped_is_counted(cleaned, capsys):
    pairs, _ = cleaned(identical=False, duplicates=False, max_ratio=None)
    names = ("identical sides", "length ratio above 9", "duplicate pair", "numbers differ",
             "addresses differ", "other script")  # fmt: skip
    assert pairs == [*GOOD, *(SPOILED[name][0] for name in names)]
    out = capsys.readouterr().out
    for name in names[3:]:
        assert f"retained: {name}" in out


def test_a_repeated_command_has_nothing_to_do_and_another_is_refused(cleaned, capsys):
    first, _ = cleaned()
    capsys.readouterr()
    assert cleaned()[0] == first
    assert "is complete, nothing to do" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"was made with clean.max_length=2000; use the same"):
        cleaned(max_length=7)


def test_pairs_of_val_are_an_error_unless_told(cleaned):
    train = [*GOOD, VAL[0]]
    with pytest.raises(UserError, match=r"^1 pairs of train are in val or test, too \(first: 8\)"):
        cleaned(train)
    assert cleaned(train, "dropped", leaks="drop")[0] == GOOD
    assert cleaned(train, "kept", leaks="keep")[0] == train


def test_of_equal_targets_the_first_or_the_best_source_is_left(cleaned, monkeypatch):
    train = [("Hello.", "Hallo."), ("Hi there, you.", "Hallo."), *GOOD]
    assert cleaned(train, targets="first")[0] == [train[0], *GOOD]
    monkeypatch.setattr(module, "load_bundle", lambda *_: None)
    monkeypatch.setattr(module, "bundle_contents", lambda *_: [])
    monkeypatch.setattr(
        PairScores, "log_probabilities", lambda self, sources, targets: map(len, sources)
    )
    best, _ = cleaned(train, "best", targets="best", bundle="b", reverse="r")
    assert best == [train[1], *GOOD]


def test_pairs_whose_source_tells_little_are_dropped(cleaned, monkeypatch):
    monkeypatch.setattr(module, "load_bundle", lambda *_: None)
    monkeypatch.setattr(module, "bundle_contents", lambda *_: [])
    told = [0.5, 0.49, -1, float("nan"), 3, 2, 2]
    monkeypatch.setattr(PairScores, "information", lambda *_: told)
    found, directory = cleaned(GOOD, min_information=0.5, bundle="b")
    assert found == [GOOD[0], *GOOD[3:]]
    assert (
        "## source tells under 0.5 nats per target token" in (directory / "report.md").read_text()
    )


def test_information_is_what_a_source_adds_to_another_of_its_length(monkeypatch):
    """The stand-in finds targets likely that begin as their source does."""
    sources = ["a bird", "the boy", "a bird"]
    targets = ["a", "t", "t"]

    def scored(unlikely, read, written):
        same = [own[0] == other[0] for own, other in zip(read, written, strict=True)]
        return np.where(same, -1.0, -unlikely)

    monkeypatch.setattr(scores, "_log_probabilities", scored)
    assert [*PairScores(3.0).information(sources, targets)] == [2, 2, -2]
    assert [*PairScores(3.0, 5.0).information(sources, targets)] == [3, 3, -3]


def test_another_source_is_not_alike():
    sources = [f"{one} sleeps{mark}" for one in ("A cat", "The man") for mark in ".,!"]
    for text, other in zip(sources, scores._others(sources), strict=True):
        assert text[:3] != other[:3]
    assert scores._others(["a cat sleeps.", "a cat sleeps,"]) == ["", ""]
    assert scores._others(["犬がいる", "犬がいた", "猫です。"])[0] == "猫です。"
    assert not grows(lambda text: scores._others(text.split()), "ab c ")


def test_numbers_and_addresses_are_compared_by_what_they_say():
    assert numbers_of("1,000.50 and ٣٤ or 7.") == numbers_of("7, ٣٤, 1.000,50")
    assert numbers_of("12") != numbers_of("1 2")
    text = "see (https://x.org/A/), mail A@b.de. @ @x www.y.z"
    assert addresses_of(text) == ["a@b.de", "https://x.org/a", "www.y.z"]
    for work in (numbers_of, addresses_of):
        assert not [sign for sign in (*SIGNS, "1", "1,", "@.") if grows(work, sign)]


def test_scripts_are_those_of_most_letters():
    scripts = usual_scripts(["これは犬です。カタカナ"] * 9 + ["abc"])
    assert scripts == {"HIRAGANA", "CJK", "KATAKANA"}
    assert is_in(scripts, "犬 ein です")
    assert is_in(scripts, "42!")
    assert not is_in(scripts, "der Hund 犬")


def test_another_language_is_found(cleaned):
    pytest.importorskip("py3langid")
    english = "The man who lives in this house has two dogs."
    other = ("The man reads his newspaper every day.", "L'homme lit son journal tous les jours.")
    german = "Der Mann, der in diesem Haus wohnt, hat zwei Hunde."
    train = [(f"{english} {n}", f"{german} {n}") for n in "abcdef"] + [other]
    assert cleaned(train, drop=["language"])[0] == train[:-1]


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"min_information": 0.5}, "clean.min_information needs a trained model; set clean.bundle"),
        ({"bundle": "b"}, "clean.bundle has no effect without clean.min_information"),
        ({"reverse": "b", "min_information": 0.5}, "clean.min_information needs a trained model"),
        ({"targets": "best", "bundle": "b"}, "needs models of both directions"),
        ({"min_length": 9, "max_length": 3}, "clean.max_length must be at least"),
        ({"min_length": 900}, r"none of 15 pairs is left to train on: .*empty side 1"),
    ],
)
def test_rules_that_cannot_be_are_refused(cleaned, rules, message):
    with pytest.raises(UserError, match=message):
        cleaned(**rules)
