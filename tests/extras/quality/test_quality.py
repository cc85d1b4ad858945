"""Signals are those of the model, expected scores follow them, and faults are found."""

import json
import os

import numpy as np
import pytest
import torch

import seqattn
from seqattn.analysis.word_alignment import words_of
from seqattn.bundle.text_options import LineOutput, OutputOf
from seqattn.extras.explain.explanations import explain
from seqattn.extras.quality.calibration import Calibration, calibrated
from seqattn.extras.quality.figures import BINS, auc, reliability, risk_coverage, spearman
from seqattn.extras.quality.judge import Judge, Judgement, pairs_of
from seqattn.extras.quality.quality import Quality
from seqattn.extras.quality.signals import SIGNALS, Reading, signals_of
from seqattn.generation.forced_decoding import forced_log_probabilities
from seqattn.tokens import EOS
from tests.bundle.conftest import bundle, configuration, tokenizer, untrained  # noqa: F401
from tests.cli.small import (
    json_lines,
    pairs,
    refusal,
    run,
    succeed,
    train,
    train_arguments,
    write_split,
)

SOURCES = ["a dog sees the cat", "two birds by the tree", "the old house", "a cat , two birds ."]
OUTPUTS = ["the dog hears a cat", "birds", "a dog a dog a dog", "two birds . an old house !"]


def read(of, sources=SOURCES, outputs=OUTPUTS):
    return [*pairs_of(of, sources, outputs).values()]


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory, tokenizer):  # noqa: F811
    home = tmp_path_factory.mktemp("recurrent") / "model"
    return seqattn.load(untrained(home, tokenizer, configuration("rnn")))


@pytest.fixture(scope="module")
def loaded(bundle):  # noqa: F811
    return seqattn.load(bundle)


def test_signals_are_those_of_the_model(loaded):
    [reading] = signals_of(loaded, read(loaded)[:1])
    source = loaded.encode(SOURCES[:1])[0][0]
    target = loaded.tokenizer.encode_target(OUTPUTS[:1])[0]

    def likely(ids):
        return forced_log_probabilities(loaded.model, [(ids, target)])[0]

    own, told = likely(source), reading.signals
    assert told["log_probability"] == pytest.approx(own / len(target), rel=1e-4)
    alone = own - likely([EOS])
    assert told["contrast"] == pytest.approx(alone / len(target), abs=1e-4)
    words = words_of(loaded.tokenizer.source_pieces(source))
    for (_, places), use in zip(words, reading.use, strict=True):
        rest = [token for place, token in enumerate(source) if place not in places]
        assert use == pytest.approx(own - likely(rest), abs=1e-3)
    shares = explain(loaded.model, torch.tensor([source]), torch.tensor([target]), "alti").source[0]
    assert told["source_share"] == pytest.approx(float(shares.sum(1).mean()), rel=1e-4)
    largest = [float(shares[:, places].sum(1).max()) for _, places in words]
    assert told["coverage"] == pytest.approx(np.mean(largest), rel=1e-4)


def test_words_give_repetition_copies_and_length(loaded):
    _, _, third, fourth = signals_of(loaded, read(loaded), words=False)
    assert third.signals["repetition"] == pytest.approx(3 / 5)  # a dog, dog a, a dog again
    assert third.signals["length"] == pytest.approx(np.log(6 / 3))
    assert fourth.signals["copied"] == pytest.approx(2 / 5)  # two birds; signs do not count
    assert fourth.signals["repetition"] == 0
    assert fourth.use == [np.inf] * 6
    assert [value < np.inf for value in fourth.support] == [True] * 2 + [False] + [True] * 3 + [
        False
    ]


@pytest.mark.parametrize("kind", ["loaded", "recurrent"])
def test_the_batch_and_its_padding_change_nothing(request, kind):
    of = request.getfixturevalue(kind)
    together = signals_of(of, read(of))
    for one, pair in zip(together, read(of), strict=True):
        [apart] = signals_of(of, [pair])
        assert one.signals == pytest.approx(apart.signals, abs=1e-4)
        assert one.support == pytest.approx(apart.support, abs=1e-4)
        assert one.use == pytest.approx(apart.use, abs=1e-3)


def readings(count, seed=0):
    """Sentences whose score depends on two signals, with noise."""
    random = np.random.default_rng(seed)
    values = random.normal(size=(count, len(SIGNALS)))
    rows = [dict(zip(SIGNALS, row)) for row in values.tolist()]
    odds = (
        values[:, 0] - 0.5 * abs(values[:, [*SIGNALS].index("length")]) + random.normal(size=count)
    )
    scores = 100 / (1 + np.exp(-odds))
    return [Reading(row, row["contrast"] * np.ones(2), [np.inf]) for row in rows], scores


def test_the_fit_is_monotone_and_right_on_average():
    some, scores = readings(400)
    fit = calibrated(some, scores, "chrF", 0.1)
    rows = [one.signals for one in some]
    expected = np.array([fit.expected(row) for row in rows])
    assert expected.mean() == pytest.approx(scores.mean(), abs=0.1)
    assert fit.correlation["expected"] > max(fit.correlation[name] for name in SIGNALS) > 0.4
    for _, told, actual in fit.reliability:
        assert told == pytest.approx(actual, abs=10)
    for name, sign in SIGNALS.items():
        usual = fit.signals[name][0]
        for row in rows[:50]:
            better = usual + 0.5 * (row[name] - usual) if sign == 0 else row[name] + sign
            assert fit.expected({**row, name: better}) >= fit.expected(row)
    assert np.mean([one.support[0] < fit.support for one in some]) == pytest.approx(0.1, abs=0.01)
    assert fit.use < min(one.use[0] for one in some)  # no word has a number: none is marked


def test_a_signal_that_never_changes_or_is_absent_does_no_harm():
    some, scores = readings(40)
    for one in some:
        one.signals["repetition"] = 0.0
        del one.signals["coverage"]
    fit = Calibration.fit([one.signals for one in some], scores, "chrF")
    assert "coverage" not in fit.signals
    assert fit.expected({"repetition": 1.0}) == pytest.approx(fit.expected({}), abs=1)
    with pytest.raises(seqattn.errors.UserError, match="needs 20 outputs"):
        calibrated(some[:19], scores[:19], "chrF", 0.1)


def test_an_output_that_leaves_out_much_of_its_source_is_not_usable(loaded):
    for use, settings, label in (
        (-1e9, Quality(), "usable"),
        (1e9, Quality(), "review"),
        (1e9, Quality(left_out=1.0), "usable"),
        (1e9, Quality(words=False), "usable"),  # none is marked
    ):
        fit = Calibration(score="chrF", bias=9.0, signals={}, use=use)
        [one] = Judge(settings, loaded, fit)("a dog sees the cat", "the dog")
        assert (one.label, one.expected > 99) == (label, True)
    assert [Quality().label(70, share) for share in (0.25, 0.26)] == ["usable", "review"]
    assert [Quality().label(score, 1.0) for score in (40, 39)] == ["review", "unusable"]


def test_the_worst_output_has_the_worst_label(loaded, capsys):
    rows = [Judgement(70.0, "usable"), Judgement(95.0, "review"), Judgement()]
    judge = Judge(Quality(worst=1), loaded, Calibration(score="chrF", bias=0.0, signals={}))
    assert judge.joined(rows) is rows[1]
    for line, one in enumerate(rows, 1):
        judge.count(line, one, "ein Hund")
    judge.say()
    assert capsys.readouterr().err.splitlines()[1:] == ["line 2: 95.0, review: ein Hund"]


def test_marked_words_of_all_lines_are_counted_through_a_text(loaded):
    best = Judgement(90.0, "usable", {}, [("a", True)], [("ein", False), ("Hund", False)])
    worst = Judgement(9.0, "unusable", {}, [("two", False), ("birds", True)], [("Vögel", True)])
    lines = [
        LineOutput("a", "ein Hund", best),
        LineOutput("4. 2.", "4. 2.", is_copy=True),
        LineOutput("two birds", "Vögel", worst),
    ]
    judge = Judge(Quality(), loaded, Calibration(score="chrF", bias=0.0, signals={}))
    note = judge.note(OutputOf(1, "", "", lines, "", None, True))
    assert note.columns == ["9.0\tunusable\t4:Vögel\t0:a 4:birds"]
    alone = judge.note(OutputOf(1, "", "", lines[2:], "", None, True))
    assert alone.columns == ["9.0\tunusable\t0:Vögel\t1:birds"]


def test_figures_are_those_of_scipy():
    from scipy import stats

    random = np.random.default_rng(1)
    one, other = random.integers(0, 9, 60).astype(float), random.integers(0, 9, 60).astype(float)
    assert spearman(one, other) == pytest.approx(stats.spearmanr(one, other).statistic)
    expected = stats.mannwhitneyu(one[:20], one[20:]).statistic / (20 * 40)
    assert auc(one[:20], one[20:]) == pytest.approx(expected)
    assert spearman(np.ones(60), other) == 0


def test_a_risk_curve_falls_from_the_best_to_all():
    scores = np.arange(20.0)
    assert risk_coverage(scores, scores)[0] == [0.1, 18.5, 18.5]
    assert risk_coverage(-scores, scores)[0] == [0.1, 0.5, 18.5]
    assert risk_coverage(-scores, scores)[-1] == [1.0, 9.5, 9.5]
    assert reliability(scores, scores)[0] == [2, 0.5, 0.5]
    assert len(reliability(scores, scores)) == BINS


# on a bundle that has learned sixty sentences


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A calibrated bundle that translates sixty pairs, and their folder."""
    from seqattn.cli.main import run_subcommand

    root = tmp_path_factory.mktemp("learned")
    rows = [*pairs()]
    for split in ("train", "val", "test"):
        write_split(root / "corpus", split, rows)
    sizes = ("model.dim=48", "model.ffn_dim=64")
    options = (f"run_dir={root}/run", "optimizer.lr=0.005", "model.dropout=0")
    train(train_arguments(root / "corpus", *sizes, *options, steps=300, every=300))
    words = [f"bundle={root}/run/model", "split=val", "quality=true", f"output={root}/val"]
    assert run_subcommand("evaluate", words) == 0
    return root


@pytest.fixture(scope="module")
def judge(learned):
    return Quality().of(seqattn.load(learned / "run" / "model"))


@pytest.mark.slow
def test_shuffled_and_repeated_outputs_are_worse(judge):
    sources, targets = zip(*pairs())
    right = judge(sources, targets)
    found = {
        "shuffled": judge(sources, targets[7:] + targets[:7]),
        "repeated": judge(sources, [f"{text[:-2]} {text}" for text in targets]),
    }
    for name, faulty in found.items():
        expected = [np.array([one.expected for one in some]) for some in (right, faulty)]
        assert auc(*expected) > 0.95, name


@pytest.mark.slow
def test_words_without_a_source_and_without_an_output_are_marked(judge):
    [added, left, fine] = judge(
        ["a dog sees a ball .", "a dog sees a ball two birds .", "a dog sees a ball ."],
        ["ein Hund sieht einen Ball zwei Vögel .", "ein Hund sieht einen Ball .",
         "ein Hund sieht einen Ball ."],
    )  # fmt: skip
    assert {"zwei", "Vögel"} & {word for _, word in added.marks["unsupported"]}
    assert {"two", "birds"} & {word for _, word in left.marks["left_out"]}
    assert fine.expected > max(added.expected, left.expected)
    assert added.tsv().split("\t")[2] == " ".join(f"{n}:{w}" for n, w in added.marks["unsupported"])


@pytest.mark.slow
def test_what_cannot_be_judged_says_so(judge):
    blank, lost, both = judge(["", "a dog sees a ball .", "a dog"], ["", "", "ein Hund"])
    assert (blank.expected, blank.label) == (None, None)
    assert (lost.expected, lost.label) == (0.0, "unusable")
    assert both.label
    assert blank.tsv() == "\t\t\t"
    assert judge.joined([both]) is both
    assert judge.joined([both, blank, lost]) is lost
    assert judge.joined([blank, both]) is both


@pytest.mark.slow
def test_generate_writes_columns_keys_and_a_summary(capfd, learned):
    words = [f"bundle={learned}/run/model", f"input={learned}/corpus/test.en", "quality=true"]
    plain = succeed(capfd, "generate", *words[:2]).splitlines()
    ended = run(capfd, "generate", *words, "quality.usable=100", "quality.worst=2")
    rows = [line.split("\t") for line in ended.out.splitlines()]
    assert [row[3] for row in rows] == plain
    assert {len(row) for row in rows} == {8}
    first, *worst = ended.err.splitlines()
    assert first.startswith("expected chrF ")
    assert "60 (100%) review" in first or "unusable" in first
    lowest = sorted(rows, key=lambda row: float(row[4]))[0]
    assert worst[0].startswith(f"line {int(lowest[0])}: {lowest[4]}, ")
    assert len(worst) == 2
    documents = json_lines(succeed(capfd, "generate", *words, "format=jsonl", "alignments=true"))
    for row, document in zip(rows, documents, strict=True):
        assert document["quality"]["expected"] == pytest.approx(float(row[4]), abs=0.06)
        assert document["alignment"]
        assert {*document["quality"]["signals"]} == {*SIGNALS}


@pytest.mark.slow
def test_an_evaluation_gives_figures_and_the_auc_of_labels(capfd, learned, tmp_path):
    labels = tmp_path / "labels"
    labels.write_text("0\n1\n" * 30)
    words = [f"bundle={learned}/run/model", "quality=true", f"output={tmp_path}/test"]
    out = succeed(capfd, "evaluate", *words, f"quality.labels={labels}", "quality.words=false")
    assert "AUC" in out.upper()
    figures = json.loads((tmp_path / "test" / "scores.json").read_text())["quality"]
    assert {*figures["auc"]} == {*figures["correlation"]} == {"expected", *SIGNALS}
    assert len(figures["risk_coverage"]) == BINS
    assert len(json_lines((tmp_path / "test" / "quality.jsonl").read_text())) == 60
    held_out = (f"quality.labels={labels}", "quality.words=false", "data.hold_out_test=21")
    out = succeed(capfd, "evaluate", *words, *held_out)
    assert "scored 21 rows" in out
    assert "AUC" in out.upper()
    for text, line in (
        ("0\n" * 59, "must have one line per pair of the split, got 59 lines for 60"),
        ("2\n", "line 1 must be"),
    ):
        labels.write_text(text)
        assert line in refusal(capfd, "evaluate", *words, f"quality.labels={labels}")


def test_a_bundle_that_is_not_calibrated_says_what_to_do(capfd, bundle):  # noqa: F811
    words = (f"bundle={bundle}", "text=a dog", "quality=true")
    line = refusal(capfd, "generate", *words)
    assert line.endswith(f"run seqattn evaluate bundle={bundle} split=val quality=true")
    line = refusal(capfd, "generate", *words, "format=text")
    assert line == "format=text has no quality; remove it, or add format=jsonl"
    line = refusal(capfd, "generate", *words, "quality.review=70")
    assert line == "quality.review must be at most quality.usable (60), got 70"
    assert run(capfd, "generate", *words[:2], "quality=false").code == 0


def test_labels_and_calibration_are_read_before_the_search(capfd, bundle, tmp_path):  # noqa: F811
    labels, output = tmp_path / "labels", tmp_path / "out"
    words = (f"bundle={bundle}", "quality=true", f"output={output}")
    assert "needs a calibration" in refusal(capfd, "evaluate", *words, "split=test")
    words = (*words, "split=val", f"quality.labels={labels}")
    for text, line in (
        (None, "does not exist; expected a file of labels"),
        ("1\n0\n", "must have one line per pair of the split, got 2 lines for 300 pairs"),
        ("1\nx\n", "line 2 must be 1 (faulty) or 0"),
    ):
        if text is not None:
            labels.write_text(text)
        assert line in refusal(capfd, "evaluate", *words)
    labels.unlink()
    os.mkfifo(labels)
    assert "is not a regular file" in refusal(capfd, "evaluate", *words)
    assert not output.exists()


@pytest.mark.parametrize(
    "numbers",
    [[0.0, 0.0, 1.0], [0.0, 1.0, -1.0], [0.0, 1.0], None, 5, "abc", ["a", "b", "c"], [[1.0]] * 3],
)
def test_a_damaged_calibration_is_refused(loaded, numbers):
    node = {"score": "chrF", "bias": 0.0, "signals": {"log_probability": numbers}}
    loaded.config["calibration"] = node
    line = r"calibration\.signals\.log_probability is damaged; calibrate again"
    with pytest.raises(seqattn.errors.UserError, match=line):
        Quality().of(loaded)
    node["signals"] = {"log_probability": [0.0, 1.0, 1.0]}
    assert isinstance(Quality().of(loaded), Judge)
    del loaded.config["calibration"]


def test_alti_takes_no_pair_whose_longer_side_squared_times_width_is_too_large(loaded, monkeypatch):
    some = read(loaded, [SOURCES[0], "a", SOURCES[0] * 3], ["a", OUTPUTS[0] * 3, "a"])
    longest = [max(map(len, one.ids)) for one in some]
    width = loaded.config["model"]["dim"]
    monkeypatch.setattr("seqattn.extras.quality.signals._NUMBERS", width * longest[0] ** 2)
    left = ["coverage" in one.signals for one in signals_of(loaded, some)]
    assert left == [size <= longest[0] for size in longest] == [True, False, False]


def test_without_alti_two_signals_are_left_out(recurrent):
    some = signals_of(recurrent, read(recurrent))
    assert {*some[0].signals} == {*SIGNALS} - {"source_share", "coverage"}
