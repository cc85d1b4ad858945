"""Bans, minimum lengths and the coverage penalty, in every search, against searches in lists."""

import itertools
import math
from dataclasses import replace
from functools import partial

import pytest
import torch

from seqattn.analysis import capture
from seqattn.errors import UserError
from seqattn.generation import BeamSearch, Generator, GreedySearch, LengthLimit, Sampling
from seqattn.generation.processors import (
    BadWords,
    EncoderNoRepeatNgram,
    ForcedPrefix,
    NoRepeatNgram,
    Processor,
    RepetitionPenalty,
    process,
)
from seqattn.tokens import BOS, EOS
from tests.builders import POSITIONS, heads, load_choice, make_transformer
from tests.generation.table_model import TableModel
from tests.generation.test_beam import assert_same, exhaustive
from tests.models.recurrents import make_recurrent

SOURCES = [[4, 5, 3], [5, 3], [4, 4, 5, 5, 3], [5, 4, 3]]
SEARCHES = [GreedySearch, partial(BeamSearch, beam_size=3, n_best=3), partial(Sampling, n_best=3)]


def no_repeat(n):
    """The processors that ban n-grams from being said twice; none for n = 0."""
    return [NoRepeatNgram(n)] if n else []


def banned(prefix, n):
    """Tokens that would say n tokens in a row again."""
    if n == 0 or len(prefix) < n:
        return set()
    grams = [prefix[i : i + n] for i in range(len(prefix) - n + 1)]
    return {gram[-1] for gram in grams if gram[:-1] == prefix[len(prefix) - n + 1 :]}


def allowed(following, n, minimum):
    """`following` under a ban on n-grams and a minimum length."""

    def scores(prefix):
        own = following(prefix)
        no = banned(prefix, n) | ({EOS} if len(prefix) < minimum else set())
        left = [-math.inf if token in no else score for token, score in enumerate(own)]
        if all(score == -math.inf for score in left):
            left[EOS] = own[EOS]
        return left

    return scores


class LookingModel(TableModel):
    """A table model that also looks at its source, as drawn once for every pair."""

    has_weights = True

    def start(self, memory, beams=1, cached=True):
        self.width = memory.ids.shape[1]
        self.places = {
            tuple(t for t in row if t): [i for i, t in enumerate(row) if t]
            for row in memory.ids.tolist()
        }
        return super().start(memory, beams, cached)

    def look(self, source, prefix):
        """The weights on each token of a source, few of them above a half."""
        numbers = self.random_logits(("weights", *source), prefix) * len(source)
        return torch.tensor(numbers[: len(source)]).softmax(0).tolist()

    def features(self, ids, state, teacher_forcing=1.0, need_weights=False):
        output = super().features(ids, state)
        if not need_weights:
            return output
        weights = torch.zeros(len(ids), 1, self.width)
        rows = [(s, h) for s, own in zip(state.sources, state.histories) for h in own]
        for row, (source, history) in enumerate(rows):
            weights[row, 0, self.places[source]] = torch.tensor(self.look(source, history[1:]))
        return output._replace(weights=weights)

    def coverage(self, source, said):
        """sum_i log(min(sum_j a_ij, 1)) after `said`, end included."""
        sums = [0.0] * len(source)
        for j in range(len(said)):
            sums = [a + b for a, b in zip(sums, self.look(tuple(source), tuple(said[:j])))]
        return sum(math.log(min(total, 1.0)) for total in sums)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("length", [0, 1, 2, 3, 9, 30])
def test_what_would_repeat_is_banned_and_nothing_else(n, length):
    said, scores = torch.randint(4, 7, (8, length)), torch.zeros(8, 9)
    NoRepeatNgram(n)(scores, said)
    expected = [banned(tuple(row), n) for row in said.tolist()]
    assert [set((row == -math.inf).nonzero()[:, 0].tolist()) for row in scores] == expected
    assert (scores[scores > -math.inf] == 0).all()


def theirs(name, *arguments):
    """A processor of transformers."""
    package = pytest.importorskip("transformers.generation.logits_process")
    return getattr(package, name)(*arguments)


SOURCE = [[4, 5, 6, 7, 3, 0, 0], [8, 8, 8, 4, 5, 6, 3], [5, 3, 0, 0, 0, 0, 0]]
WORDS = [[4], [5, 6], [8, 8, 7], [4, 5, 6, 7]]
LIKE_THEIRS = {
    "a penalty": (RepetitionPenalty(1.8), "RepetitionPenaltyLogitsProcessor", 1.8),
    "a reward": (RepetitionPenalty(0.5), "RepetitionPenaltyLogitsProcessor", 0.5),
    "words": (BadWords(WORDS), "NoBadWordsLogitsProcessor", WORDS),
    **{
        f"n-grams of {n} of the source": (
            EncoderNoRepeatNgram(n), "EncoderNoRepeatNGramLogitsProcessor", n, torch.tensor(SOURCE)
        )
        for n in (1, 2, 3, 7, 8)
    },
}  # fmt: skip


@pytest.mark.parametrize("name", LIKE_THEIRS)
@pytest.mark.parametrize("length", [0, 1, 2, 3, 9, 30])
def test_processors_change_scores_as_those_of_transformers_do(name, length):
    ours, *made = LIKE_THEIRS[name]
    said = torch.randint(4, 9, (6, length))  # two beams of each source
    scores = torch.randn(6, 9).log_softmax(dim=1)
    # theirs begin with a mark that is not generated
    begun = torch.cat([torch.full((6, 1), 2), said], dim=1)
    expected = theirs(*made)(begun, scores.clone())
    if "penalty" in name or "reward" in name:
        expected[:, 2] = scores[:, 2]
        end = replace(ours, end=True)
        again = scores.clone()
        end(again, said)
        assert torch.equal(again[:, EOS], scores[:, EOS] * ours.penalty)
    process([ours], scores, said, torch.tensor(SOURCE).repeat_interleave(2, dim=0))
    assert torch.equal(scores, expected)


@pytest.mark.parametrize("make_search", SEARCHES)
def test_no_batch_changes_what_a_search_under_constraints_by_the_source_finds(make_search):
    constraints = [EncoderNoRepeatNgram(2), RepetitionPenalty(1.5), BadWords([[5, 4]])]
    search = make_search(LengthLimit(1.5, 6), processors=[ForcedPrefix([4], constraints)])
    for model in (TableModel(7), make_transformer()):
        alone, together = (
            Generator(model, replace(search, batch_size=size)).generate(SOURCES) for size in (1, 4)
        )
        assert [[one.ids for one in found] for found in alone] == [
            [one.ids for one in found] for found in together
        ]
        for source, found in zip(SOURCES, alone):
            grams = {*itertools.pairwise(source)}
            for ids in (one.ids for one in found):
                assert not grams.intersection(itertools.pairwise(ids))
                assert (5, 4) not in itertools.pairwise(ids)


@pytest.mark.parametrize(("ids", "reason"), [([], "must list seq"), ([[]], "must list sequences")])
def test_words_without_tokens_are_refused(ids, reason):
    with pytest.raises(UserError, match=reason):
        BadWords(ids)


def test_words_beyond_the_vocabulary_are_refused():
    search = GreedySearch(processors=[BadWords([[4, 99]])])
    with pytest.raises(UserError, match=r"bad_words: ids must be below 6, .* got "):
        Generator(TableModel(6), search).generate(SOURCES)


@pytest.mark.parametrize(("n", "minimum", "alpha"), [(1, 0, 0.0), (1, 3, 1.0), (2, 2, 1.0)])
def test_a_wide_beam_under_bans_finds_what_exhaustive_search_finds(n, minimum, alpha):
    model = TableModel(6, scale=1.0)
    limit = LengthLimit(0.0, 4, minimum)
    search = BeamSearch(limit, 700, 9, alpha, False, processors=no_repeat(n))
    for source, found in zip(SOURCES, Generator(model, search).generate(SOURCES)):
        follow = allowed(lambda p, s=source: model.following(s, p), n, minimum)
        assert_same(found, exhaustive(follow, 4, alpha)[:9])


@pytest.mark.parametrize("n", [0, 2])
@pytest.mark.parametrize("beta", [0.3, 5.0])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("early", [False, True])
def test_a_wide_beam_ranks_by_coverage_as_exhaustive_search_does(n, beta, alpha, early):
    model = LookingModel(6, scale=1.0)
    size = 300 if early else 150  # stops no sooner than it has all of them
    search = BeamSearch(LengthLimit(0.0, 3), size, 9, alpha, early, beta, processors=no_repeat(n))
    moved = 0
    for source, found in zip(SOURCES, Generator(model, search).generate(SOURCES)):
        follow = allowed(lambda p, s=source: model.following(s, p), n, 0)
        plain = exhaustive(follow, 3, alpha)
        whole = [
            (ids, score + beta * model.coverage(source, [*ids, EOS][:3]), total)
            for ids, score, total in plain
        ]
        expected = sorted(whole, key=lambda hypothesis: -hypothesis[1])[:9]
        assert_same(found, expected)
        moved += [ids for ids, _, _ in expected] != [ids for ids, _, _ in plain[:9]]
    assert moved  # or the penalty was too small to be seen


LOOKING = {
    "transformer": lambda: make_transformer(heads(4, 2), POSITIONS["rope"]),
    "performer": lambda: make_transformer(cross=load_choice("attention", "performer")),
    "copying": lambda: make_transformer(copy=True),
    "recurrent": lambda: make_recurrent("luong_general", input_feeding=True),
    "local": lambda: make_recurrent("luong_local_p"),
    "copying recurrent": lambda: make_recurrent("bahdanau", copy=True),
}


@pytest.mark.parametrize("name", LOOKING)
def test_scores_hold_the_coverage_of_the_captured_weights(name):
    model = LOOKING[name]()
    sources = [[4, 5, 6, 7, 8, 9, 10, 4, 3], [5, 3], [10, 9, 8, 7, 6, 3]]
    search = BeamSearch(LengthLimit(0.0, 4), 4, 4, 0.7, coverage_penalty=0.4)
    plain = BeamSearch(LengthLimit(0.0, 4), 4, 4, 0.7)
    both = (Generator(model, kind).generate(sources) for kind in (search, plain))
    for source, found, without in zip(sources, *both):
        for hypothesis in found:
            said = [*hypothesis.ids, EOS][:4]
            target = torch.tensor([[BOS, *said[:-1]]])
            with torch.inference_mode(), capture(model) as maps:
                model(torch.tensor([source]), target)
            last = [key for key in maps if key.endswith("cross_attention")][-1]
            looked = maps[last][0].mean(dim=1)[0].sum(dim=0)
            extra = 0.4 * looked.clamp(min=torch.finfo(looked.dtype).tiny, max=1).log().sum().item()
            score = hypothesis.log_probability / len(said) ** 0.7
            assert hypothesis.score == pytest.approx(score + extra, rel=1e-4, abs=1e-4)
        own = {hypothesis.ids: hypothesis.log_probability for hypothesis in without}
        for hypothesis in found:  # the same candidates, in another order
            known = own.get(hypothesis.ids, hypothesis.log_probability)
            assert hypothesis.log_probability == pytest.approx(known, abs=1e-4)


@pytest.mark.parametrize("make_search", SEARCHES)
def test_no_batch_changes_what_a_search_under_all_options_finds(make_search):
    options = {"processors": no_repeat(2)}
    if getattr(make_search, "func", None) is BeamSearch:
        options["coverage_penalty"] = 0.5
    search = make_search(LengthLimit(1.5, 6, 2), **options)
    for model in (LookingModel(7), make_transformer(copy=True), make_recurrent(copy=True)):
        alone, together = (
            Generator(model, replace(search, batch_size=size)).generate(SOURCES) for size in (1, 4)
        )
        for one, other in zip(alone, together):
            assert [hypothesis.ids for hypothesis in one] == [h.ids for h in other]
            assert all(len(hypothesis.ids) >= 2 for hypothesis in one)
            for ids in (hypothesis.ids for hypothesis in one):
                assert not any(token in banned(ids[:end], 2) for end, token in enumerate(ids))
            for mine, theirs in zip(one, other):
                assert mine.score == pytest.approx(theirs.score, abs=1e-4)


@pytest.mark.parametrize("make_search", SEARCHES)
def test_where_every_continuation_is_banned_the_hypothesis_ends(make_search):
    model = TableModel(6)
    search = make_search(LengthLimit(0.0, 9, 9), processors=no_repeat(1))
    for source, found in zip(SOURCES, Generator(model, search).generate(SOURCES)):
        assert found
        for hypothesis in found:
            assert set(hypothesis.ids) <= {1, 2, 4, 5}
            assert len(hypothesis.ids) == len(set(hypothesis.ids)) == 4
            said = (*hypothesis.ids, EOS)
            total = sum(model.following(source, said[:j])[token] for j, token in enumerate(said))
            assert hypothesis.log_probability == pytest.approx(total, abs=1e-4)


class Noted(Processor):
    """Notes when it is called, and forbids one token."""

    def __init__(self, name, notes, token):
        self.name, self.notes, self.token = name, notes, token

    def __call__(self, scores, said):
        self.notes.append((self.name, said.shape[1], bool((scores[:, 4] == -math.inf).all())))
        scores[:, self.token] = -math.inf


@pytest.mark.parametrize("make_search", SEARCHES)
@pytest.mark.parametrize("mapping", [False, True])
def test_processors_act_in_their_order_given_as_a_list_or_by_name(make_search, mapping):
    notes = []
    given = {"first": Noted("first", notes, 4), "second": Noted("second", notes, 5)}
    search = make_search(LengthLimit(0.0, 3), processors=given if mapping else [*given.values()])
    found = Generator(TableModel(6), search).generate(SOURCES)
    assert {token for hypotheses in found for h in hypotheses for token in h.ids} <= {1, 2}
    assert notes[:4] == [
        ("first", 0, False), ("second", 0, True), ("first", 1, False), ("second", 1, True)
    ]  # fmt: skip


def test_a_place_that_was_never_looked_at_costs_much_and_stays_finite():
    model = make_transformer(cross=load_choice("attention", "entmax"))
    search = BeamSearch(LengthLimit(0.0, 3), 3, 3, coverage_penalty=0.1)
    for found in Generator(model, search).generate(SOURCES):
        assert all(math.isfinite(hypothesis.score) for hypothesis in found)


@pytest.mark.parametrize("make_model", [lambda: TableModel(6), lambda: make_recurrent("none")])
def test_coverage_without_weights_is_refused_in_words(make_model):
    generator = Generator(make_model(), BeamSearch(coverage_penalty=0.2))
    with pytest.raises(UserError) as caught:
        generator.generate(SOURCES)
    assert str(caught.value) == (
        "generation.coverage_penalty needs attention weights over the source, which this model "
        "lacks; set generation.coverage_penalty=0"
    )


def beginning_with(ids, follow):
    """`follow` where a hypothesis may only begin with these tokens."""

    def scores(prefix):
        place, own = len(prefix), follow(prefix)
        if place >= len(ids):
            return own
        return [score if token == ids[place] else -math.inf for token, score in enumerate(own)]

    return scores


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("ids", [[4], [5, 5], [5, 4, 5]])
def test_a_wide_beam_finds_the_best_of_all_outputs_that_begin_so(ids, n):
    model = TableModel(6, scale=1.0)
    begun = [ForcedPrefix(ids, no_repeat(n))]
    search = BeamSearch(LengthLimit(0.0, 5), 700, 9, 1.0, False, processors=begun)
    for source, found in zip(SOURCES, Generator(model, search).generate(SOURCES)):

        def follow(prefix, source=source):
            whole = model.following(source, prefix)
            return whole if len(prefix) < len(ids) else allowed(lambda p: whole, n, 0)(prefix)

        assert_same(found, exhaustive(beginning_with(ids, follow), 5, 1.0)[:9])


@pytest.mark.parametrize(
    "search",
    [GreedySearch(), Sampling(seed=3), BeamSearch(LengthLimit(0.0, 4), 700, early_stopping=False)],
    ids=["greedy", "sampling", "beam"],
)
def test_what_a_search_would_begin_with_itself_changes_nothing_when_forced(search):
    model = TableModel(6, scale=1.0)
    for source, (free, *_) in zip(SOURCES, Generator(model, search).generate(SOURCES)):
        place = [SOURCES.index(source)]  # which seeds a sample
        for length in range(len(free.ids) + 1):
            begun = replace(search, processors=[ForcedPrefix(free.ids[:length])])
            assert Generator(model, begun).generate([source], place)[0][0] == free


def test_a_transformer_goes_on_from_a_forced_beginning_as_from_one_it_has_read():
    model, ids = make_transformer(), [7, 7, 5]
    search = GreedySearch(LengthLimit(0.0, 9), processors=[ForcedPrefix(ids)])
    for source, (found,) in zip(SOURCES, Generator(model, search).generate(SOURCES)):
        said = list(ids)
        while len(said) < 9 and said[-1] != EOS:
            with torch.inference_mode():
                logits = model(torch.tensor([source]), torch.tensor([[BOS, *said]]))[0, -1]
            said.append(1 + int(logits[1:].argmax()))  # padding is never said
        assert list(found.ids) == [token for token in said if token != EOS]
