"""Synthetic tasks: their examples by hand, splits, scores, and a training."""

from itertools import chain

import pytest

from seqattn.cli.main import run_subcommand
from seqattn.data.base import MissingSplit
from seqattn.data.tokenizer import Tokenizer
from seqattn.data.vocabulary import TokenizerConfig, train_tokenizer
from seqattn.errors import UserError
from seqattn.extras.synthetic.pairs import MARK, Synthetic
from seqattn.extras.synthetic.scorer import SymbolScorer


def by_hand(kind, words):
    """Return the answer to a source, found in another way than it was made."""
    if kind == "needle":
        return [words[words.index(MARK) + 1]]
    if kind == "recall":
        keys, values = words[::2], words[1::2]
        assert all(int(key) < 10 <= int(value) < 20 for key, value in zip(keys, values))
        queries = [key for key in map(str, range(10)) if key in keys]
        assert len(queries) == len(keys)
        return [*chain(*((query, values[keys.index(query)]) for query in queries))]
    order = {"copy": words, "reverse": [*reversed(words)], "sort": sorted(words, key=int)}
    return order[kind]


@pytest.mark.parametrize("kind", ["copy", "reverse", "sort", "recall", "needle"])
def test_each_target_answers_its_source(kind):
    data = Synthetic(kind, 12, 20, shortest=6, test_lengths=[9, 15], test=6)
    for number in range(28):
        source, target = data.pair("train", number)
        words = source.split()
        length = 6 + number % 7
        assert len(words) == (length // 2 * 2 if kind == "recall" else length)
        assert {int(word) for word in words if word != MARK} <= {*range(20)}
        assert target.split() == by_hand(kind, words)
    tested = [len(source.split()) for source, _ in data.stream("test")]
    assert tested == ([8, 14] if kind == "recall" else [9, 15]) * 3


def test_an_example_depends_on_seed_split_and_number_alone(tmp_path):
    data = Synthetic("copy", 8, 20, train=40, val=10, test=10)
    rows = data.load("train", tmp_path)
    assert [*zip(rows["source"], rows["target"])] == [*data.stream("train")]
    more = Synthetic("copy", 8, 20, train=50, test_lengths=[30])
    assert [*more.stream("train")][:40] == [*data.stream("train")]
    assert len(more.load("train", tmp_path)) == 50
    assert more.pair("test", 0) != data.pair("test", 0)
    assert Synthetic("copy", 8, 20, seed=1).pair("train", 0) != data.pair("train", 0)


def test_no_source_is_in_two_splits():
    data = Synthetic("copy", 3, 6, train=1500, val=300, test=300)
    sources = {s: {source for source, _ in data.stream(s)} for s in ("train", "val", "test")}
    assert len(set(chain(*sources.values()))) == sum(map(len, sources.values())) > 180  # of 216


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"kind": "recall"}, r"vocabulary must be at least 12 for sources of 12 words, got 7"),
        ({"shortest": 13}, r"shortest must be at most length \(12\), got 13"),
    ],
)
def test_impossible_settings_are_refused(settings, error):
    with pytest.raises(UserError, match=error):
        Synthetic(**{"kind": "copy", "length": 12, "vocabulary": 7, **settings})


def test_too_few_sources_and_unknown_splits_are_refused():
    data = Synthetic("copy", 3, 2)
    with pytest.raises(UserError, match="too few sources of 3 words for the val split; raise"):
        [*data.stream("val")]
    with pytest.raises(MissingSplit, match="no dev split, only val, test, train"):
        data.load("dev")


def test_every_symbol_is_one_piece(tmp_path):
    data = Synthetic("needle", 9, 200, train=2000)
    sides = [*zip(*data.stream("train"))]
    tokenizer = train_tokenizer(*sides, TokenizerConfig("bpe"), tmp_path)
    for text in sides[0]:
        assert len(tokenizer.encode_source([text])[0]) == len(text.split()) + 1


def test_scores_are_shares_of_positions_and_of_whole_outputs():
    outputs, gold = ["1 2 3 4", "1 2", "2 1 3", ""], ["1 2 3 4", "1 2 3 4", "1 2 3", "5"]
    scorer = SymbolScorer()
    values = [(100 + 50 + 100 / 3 + 0) / 4, 25]
    assert [score.value for score in scorer.score(outputs, gold)] == pytest.approx(values)
    counted = scorer.sentences(outputs, [[text] for text in gold])
    assert [one.score for one in counted] == pytest.approx(values)
    corpus = scorer.corpus()
    corpus.update(outputs[:1], gold[:1])
    corpus.update(outputs[1:], gold[1:])
    assert [corpus.compute()[name].item() for name in scorer.logged] == pytest.approx(values)
    assert scorer.score(["1 2 3 4 4"], ["1 2 3 4"])[0].value == 80
    every_second = SymbolScorer(every=2).score(["1 2 3 4", "5 6"], ["9 2 9 9", "9 6"])
    assert [score.value for score in every_second] == [75, 50]


SMALL = [
    "data.train=60", "data.val=20", "data.test=8", "data.vocabulary=12", "data.length=6",
    "model.dim=16", "trainer=cpu", "trainer.max_steps=2",
]  # fmt: skip


@pytest.mark.slow
def test_a_training_reports_its_scores_and_warns_of_nothing(tmp_path, capfd):
    words = ["task=synthetic", *SMALL, f"run_dir={tmp_path}/run", f"cache_dir={tmp_path}"]
    assert run_subcommand("train", words) == 0
    out = "".join(capfd.readouterr())
    assert "val/symbol_accuracy" in out
    assert "read from data.kind=copy data.seed=0 (val)" in out
    assert "warning" not in out
    pieces = Tokenizer.load(tmp_path / "run/tokenizer").source_vocabulary()
    assert {f"▁{number}" for number in range(12)} <= {*pieces}
