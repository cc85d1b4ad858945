"""Scores under noise: every row gets it, references follow, and differences are paired."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from seqattn.analysis.word_alignment import WordAlignment
from seqattn.bundle.outputs import Outputs
from seqattn.data.base import Texts
from seqattn.data.source_ids import Headed
from seqattn.errors import UserError
from seqattn.extras.noise.noise import Noise
from seqattn.metrics.text import TextScorer
from seqattn.settings.nodes import build
from tests.cli.small import composed, pairs

BUNDLE = Path(__file__).parents[2] / "golden" / "bundle"
SOURCES, TARGETS = (list(side) for side in zip(*pairs()))
ROWS = Texts(SOURCES, TARGETS, [[text, f"so {text}"] for text in TARGETS], None)
ALL = Noise(upper=0.1, title=0.1, typos=0.1, end_punctuation=0.1, copied=0.1, tags=0.1)


def by_place(source, target):
    """Links of a model that links the words of both sides by their place."""
    return [min(number, len(source) - 1) for number in range(len(target))]


def no_links(*_):
    raise UserError("no attention")


def evaluated(tmp_path, output, noise=ALL, rows=ROWS, links=by_place):
    """Scores of a model whose output for a row is `output(source, references)`."""

    def again(noisy, progress=None):
        texts = [output(*row) for row in zip(noisy.sources, noisy.references)]
        return Outputs(noisy, texts, 1.0, again=again)

    where = TextScorer(), "test", tmp_path, None

    def align(sources, targets):
        words = ([text.split() for text in texts] for texts in (sources, targets))
        return [WordAlignment(*sides, links(*sides)) for sides in zip(*words, strict=True)]

    figures, table = noise.evaluated(SimpleNamespace(align=align), again(rows), *where)
    lines = [json.loads(line) for line in (tmp_path / "noise.jsonl").read_text().splitlines()]
    return figures, table, lines


def test_a_model_that_noise_does_not_touch_loses_nothing(tmp_path):
    figures, table, lines = evaluated(tmp_path, lambda _, references: references[0])
    assert [*figures] == ["typos", "end_punctuation", "title", "upper", "mix"]
    for name, figure in figures.items():
        assert figure["rows"] == 60, name
        for score in figure["scores"]:
            assert score["value"] == pytest.approx(100)
            assert score["difference"] == pytest.approx(0)
            assert score["difference_interval"] == pytest.approx([0, 0])
            assert score["signature"].endswith(f"|noise:{name}|seed:1")
    kept = ", in which 100.0% of the target words keep their link"
    assert table["upper"].endswith(f"; 60 of 60 rows change{kept}")
    each = {name: [line for line in lines if line["noise"] == name] for name in figures}
    assert [len(some) for some in each.values()] == [60] * 5
    assert [line["references"][0] for line in each["typos"]] == TARGETS
    assert [line["source"] for line in each["upper"]] == [text.upper() for text in SOURCES]
    assert [line["references"][1] for line in each["upper"]] == [f"SO {x.upper()}" for x in TARGETS]
    assert [line["source"] for line in each["end_punctuation"]] == [text[:-2] for text in SOURCES]
    kinds = [{n for n, some in each.items() if line in [{**one, "noise": "mix"} for one in some]}
             for line in each["mix"]]  # fmt: skip
    assert {name for names in kinds for name in names} == {*figures}
    assert all(len(names) == 2 for names in kinds)  # mix, and the kind that it drew


def test_differences_are_those_of_the_scores(tmp_path):
    clean = dict(zip(SOURCES, TARGETS))
    figures, table, lines = evaluated(
        tmp_path, lambda source, _: clean.get(source, "nichts"), Noise(typos=0.5)
    )
    assert [*figures] == ["typos"]
    (bleu, chrf) = figures["typos"]["scores"]
    for score in (bleu, chrf):
        low, high = score["difference_interval"]
        assert score["difference"] == pytest.approx(score["value"] - 100)
        assert low <= score["difference"] <= high < -90
    line = next(line for line in lines if f"{line['source']} ->" in table["worst of typos"])
    assert f"(chrF {line['chrF']:.1f}, clean {line['clean']:.1f})" in table["worst of typos"]
    assert line["clean"] - line["chrF"] == max(one["clean"] - one["chrF"] for one in lines)


def test_links_under_noise_are_compared_with_those_of_the_same_words_without(tmp_path):
    def shares(links):
        figures, *_ = evaluated(tmp_path, lambda *_: "x", links=links)
        return [figure.get("same_links") for figure in figures.values()]

    typos, marks, *case, mix = shares(by_place)
    assert 0.8 < typos < 1  # a lost or added space moves the words after it
    assert 0.8 < mix <= marks == 1
    assert case == [1, 1]
    capitals = shares(lambda source, target: ["".join(source).isupper()] * len(target))
    assert capitals[0] > 0.9  # typos change no case
    assert capitals[2:4] == [1, 0]
    assert shares(no_links) == [None] * 5


def test_noise_that_changes_nothing_is_not_searched(tmp_path):
    rows = Texts(["我喜欢猫"], ["एक बात"], [["एक बात"]], None)
    figures, table, _ = evaluated(tmp_path, lambda *_: "x", Noise(upper=1), rows)
    assert (figures, table) == ({}, {"upper": "changes no row"})


def test_kinds_can_be_listed():
    settings, _ = composed("evaluate", f"bundle={BUNDLE}", "noise=[upper,typos]")
    assert build(settings["noise"]).rates.keys() == {"typos", "upper"}


def test_what_cannot_be_scored_is_refused():
    bundle, scorer = SimpleNamespace(reads=("text",)), TextScorer()
    ALL.check_split(bundle, ROWS, scorer, "test", None)
    Noise().check_split(bundle, ROWS, object(), "test", None)
    for noise, reads, rows, judge, message in (
        (Noise(copied=0.1), ["text"], ROWS, scorer, r"evaluate tries noise=upper\|title\|typos"),
        (ALL, ["question", "context"], ROWS, scorer, "a bundle that reads plain texts"),
        (ALL, ["text"], Texts([Headed("a b", 2)], [], [["a"]], None), scorer, "plain texts"),
        (ALL, ["text"], ROWS, object(), "a scorer of sentences"),
    ):
        with pytest.raises(UserError, match=message):
            noise.check_split(SimpleNamespace(reads=reads), rows, judge, "test", None)
