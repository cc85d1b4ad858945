"""Settings of a search tried on the validation split, and hypotheses ranked anew."""

import pytest
import torch

from seqattn.bundle.load import load_bundle
from seqattn.data.base import Texts
from seqattn.errors import UserError
from seqattn.generation import BeamSearch, GreedySearch, LengthLimit, Sampling
from seqattn.metrics.rouge import RougeScorer
from seqattn.metrics.text import TextScorer
from seqattn.subcommands.reranking import Reranking
from seqattn.subcommands.tuning import AllFinished, Tuning, grid_of, show
from seqattn.tokens import BOS
from tests.bundle.conftest import corpus
from tests.metrics.error_scorer import ErrorScorer
from tests.nodes import node

SOURCES = [*corpus()[::4], ""]
LIMIT = LengthLimit(1.0, 4)
PENALTIES = [0.0, 0.5, 1.0, 3.0]


@pytest.fixture(scope="module")
def bundle(writers):
    return load_bundle(writers / "transformer")


def texts():
    said = [f"{text} dog" for text in SOURCES]
    return Texts(list(SOURCES), said, [[text] for text in said], None)


def tuned(bundle, search, grid, scorer=None, **more):
    steps = []
    found = Tuning(bundle, node(search), grid, scorer or TextScorer(), **more).run(
        texts(), lambda *step: steps.append(step)
    )
    assert steps == [(number, len(found)) for number in range(1, len(found) + 1)]
    assert [t.scores[0].value for t in found] == sorted(
        (t.scores[0].value for t in found), reverse=True
    )
    return found


@pytest.mark.parametrize(
    ("settings", "searches"),
    [
        ({}, 1),
        ({"early_stopping": False}, 4),
        pytest.param({"coverage_penalty": 0.3}, 4, marks=pytest.mark.exhaustive),
    ],
)
def test_every_length_penalty_gives_what_a_search_with_it_gives(
    bundle, monkeypatch, settings, searches
):
    done, search = [], BeamSearch.search
    monkeypatch.setattr(BeamSearch, "search", lambda *a: done.append(a[0]) or search(*a))
    found = tuned(bundle, BeamSearch(LIMIT, beam_size=4, **settings), {"length_penalty": PENALTIES})
    assert len(done) == searches
    assert all(isinstance(one, AllFinished) == (searches == 1) for one in done)
    for trial in found:
        own = BeamSearch(LIMIT, beam_size=4, **settings, **trial.settings)
        assert trial.outputs == bundle.generate(SOURCES, own)
    assert len({tuple(trial.outputs) for trial in found}) > 2


def test_every_combination_is_tried_in_the_order_that_was_typed(bundle):
    grid = {"limit.extra": [1, 4], "length_penalty": [0.0, 3.0], "beam_size": [2]}
    found = tuned(bundle, BeamSearch(LIMIT), grid)
    assert [list(trial.settings) for trial in found] == [list(grid)] * 4
    assert {tuple(trial.settings.values()) for trial in found} == {
        (extra, penalty, 2) for extra in (1, 4) for penalty in (0.0, 3.0)
    }
    for trial in found:
        extra, penalty, _ = trial.settings.values()
        own = BeamSearch(LengthLimit(1.0, extra), beam_size=2, length_penalty=penalty)
        assert trial.outputs == bundle.generate(SOURCES, own)


def test_settings_that_give_the_same_outputs_are_within_noise(bundle, capsys):
    found = tuned(bundle, BeamSearch(LIMIT, beam_size=3), {"batch_size": [2, 50]})
    assert [trial.p for trial in found] == [None, 1.0]
    assert show("title", found) == f"generation.batch_size={found[0].settings['batch_size']}"
    assert "different from the best: 1 of 1 " in capsys.readouterr().out.replace("\n", " ")


def test_means_over_sentences_are_tested_too(bundle):
    sources = corpus()
    said = bundle.generate(sources, BeamSearch(LengthLimit(1.0, 9), beam_size=2))
    split = Texts(sources, said, [[text] for text in said], None)
    grid = {"limit.extra": [0, 9]}
    tuning = Tuning(bundle, node(BeamSearch(LIMIT, beam_size=2)), grid, RougeScorer())
    best, other = tuning.run(split, lambda *_: None)
    assert best.settings == {"limit.extra": 9}
    assert best.p is None
    assert other.p < 0.02


def test_the_best_of_errors_has_the_fewest(bundle):
    sources = corpus()[:12]
    said = bundle.generate(sources, BeamSearch(LengthLimit(1.0, 9), beam_size=2))
    split = Texts(sources, said, [[text] for text in said], None)
    search = node(BeamSearch(LIMIT, beam_size=2))
    found = Tuning(bundle, search, {"limit.extra": [0, 9]}, ErrorScorer()).run(
        split, lambda *_: None
    )
    assert [trial.settings for trial in found] == [{"limit.extra": 9}, {"limit.extra": 0}]
    assert found[0].scores[0].value == 0 < found[1].scores[0].value


@pytest.mark.parametrize(
    ("grid", "text"),
    [
        ({"foo": [1]}, "unknown key generation.foo"),
        ({"limit.foo": [1]}, "unknown key generation.limit.foo"),
        ({"foo.bar": [1]}, "unknown key generation.foo;"),
        ({"beam_size": [4, 0.5]}, "generation.beam_size must be a whole number"),
        ({"rerank.weight": [1]}, "tune.rerank.weight needs a reranking model"),
    ],
)
def test_a_grid_that_cannot_be_tried_is_refused_before_any_search(bundle, grid, text):
    with pytest.raises(UserError, match=text):
        Tuning(bundle, node(BeamSearch()), grid, TextScorer())


def test_settings_that_fit_together_alone_are_tried_together(bundle):
    search = BeamSearch(LIMIT, beam_size=2)
    assert len(tuned(bundle, search, {"beam_size": [4], "n_best": [3, 4]})) == 2
    with pytest.raises(UserError, match=r"n_best must be from 1 to generation.beam_size \(3\)"):
        tuned(bundle, search, {"beam_size": [4, 3], "n_best": [3, 4]})


def test_a_scorer_that_cannot_compare_is_refused_before_any_search(bundle):
    with pytest.raises(UserError, match=r"^tune needs a scorer .* object lacks"):
        Tuning(bundle, node(BeamSearch()), {"beam_size": [2]}, object())


def test_a_grid_is_of_lists_of_numbers():
    assert grid_of({"a": [1, 1, 2.5], "b": {"c": [0]}}) == {"a": [1, 2.5], "b.c": [0]}
    for wrong in (5, [], ["x"], [True], None):
        with pytest.raises(UserError, match=r"tune\.b\.c must be a list of numbers"):
            grid_of({"b": {"c": wrong}})


# --- reranking ----------------------------------------------------------------------------------


def mean_log_probability(bundle, source, target):
    """By one pass over the whole target."""
    (read,), (said,) = (
        bundle.tokenizer.encode_source([source]),
        bundle.tokenizer.encode_target([target]),
    )
    with torch.no_grad():
        logits = bundle.model(torch.tensor([read]), torch.tensor([[BOS, *said[:-1]]]))
    likely = logits[0].log_softmax(-1).gather(1, torch.tensor(said)[:, None])
    return likely.mean().item()


@pytest.mark.parametrize(
    "direction", ["reverse", pytest.param("forward", marks=pytest.mark.exhaustive)]
)
def test_a_hypothesis_scores_what_its_search_and_the_other_model_say(bundle, writers, direction):
    options = Reranking(bundle=str(writers / "rnn"), weight=0.7, direction=direction)
    reranker, other = options.over(bundle.tokenizer), load_bundle(writers / "rnn")
    search = options.search(BeamSearch(LIMIT, beam_size=4))
    assert search.n_best == 4
    found = bundle.hypotheses(SOURCES, search)
    ranked = reranker.rank(SOURCES, found)
    moved = 0
    for source, before, after in zip(SOURCES, found, ranked):
        expected = {}
        for one in before:
            (text,) = bundle.tokenizer.decode_target([one.ids])
            pair = (text, source) if direction == "reverse" else (source, text)
            expected[one.ids] = one.score + 0.7 * mean_log_probability(other, *pair)
        assert {one.ids: one.score for one in after} == pytest.approx(expected, abs=1e-4)
        assert list(after) == sorted(after, key=lambda one: -one.score)
        moved += before[0].ids != after[0].ids
    assert moved


def test_a_weight_is_tuned_with_the_search(bundle, writers, monkeypatch):
    options = Reranking(bundle=str(writers / "rnn"))
    reranker, scored = options.over(bundle.tokenizer), []

    def some(model, pairs):
        scored.extend(map(str, pairs))
        return [float(sum(read) % 7) for read, _ in pairs]

    monkeypatch.setattr("seqattn.subcommands.reranking.forced_log_probabilities", some)
    grid = {"rerank.weight": [0.0, 50.0], "length_penalty": [0.0, 1.0]}
    found = tuned(bundle, BeamSearch(LIMIT, beam_size=3), grid, rerank=options, reranker=reranker)
    assert len(scored) == len(set(scored)) > 0  # none twice
    for trial in found:
        weight, penalty = trial.settings.values()
        plain = bundle.generate(SOURCES, BeamSearch(LIMIT, beam_size=3, length_penalty=penalty))
        assert (trial.outputs == plain) == (weight == 0.0)


def test_reranking_needs_several_hypotheses(bundle):
    options = Reranking(bundle="anything")
    for search in (GreedySearch(), Sampling(), BeamSearch(LIMIT, beam_size=1)):
        with pytest.raises(UserError, match="reranking needs several hypotheses"):
            options.search(search)
    assert options.search(Sampling(n_best=3)) == Sampling(n_best=3)
    assert Reranking().over(bundle.tokenizer) is None
    assert Reranking().search(GreedySearch()) == GreedySearch()
