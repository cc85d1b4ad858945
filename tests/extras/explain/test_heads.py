"""What heads look at: against loops over every weight, and the same in every batch."""

import math
from collections import Counter

import pytest
import torch

from seqattn.analysis import capture, intervene
from seqattn.analysis.intervene import uniform
from seqattn.analysis.pairs import Pair
from seqattn.attention.experts import MixtureOfAttention
from seqattn.extras.explain.head_figures import (
    HeadFigures,
    attention_heads,
    deciding_tokens,
    head_figures,
)
from seqattn.extras.explain.head_plots import head_map
from seqattn.extras.explain.head_tables import heads_table
from seqattn.extras.explain.importance import head_importance
from seqattn.extras.pictures import health
from seqattn.extras.pictures.head_sums import HeadSums
from seqattn.positions import ALiBiPosition, ShawPosition
from seqattn.tokens import BOS, EOS, PAD
from tests.builders import load_choice, load_variant, make_transformer
from tests.extras.pictures.test_health import SOURCE, TARGET
from tests.models.recurrents import make_recurrent

PAIRS = [
    Pair([4, 5, 6, 5, EOS], [7, 8, 7, EOS]),
    Pair([9, 4, EOS], [8, EOS]),
    Pair([6, 6, 4, 8, 10, 4, EOS], [9, 8, 6, 5, 4, EOS]),
]
ENCODER, DECODER = "encoder.layers.1.self_attention", "decoder.layers.0.self_attention"
CROSS = "decoder.layers.1.cross_attention"


@pytest.fixture(scope="module")
def model():
    return make_transformer(position=ALiBiPosition)


def each(model, name, head):
    """The pair, the weights (T, S), the ids of queries and of keys, each sentence alone."""
    for pair in PAIRS:
        with torch.no_grad(), capture(model) as maps:
            model(torch.tensor([pair.source]), torch.tensor([pair.read]))
        queries = pair.source if name == ENCODER else pair.read
        keys = pair.read if name == DECODER else pair.source
        yield pair, maps[name][0][0, head].double().tolist(), queries, keys


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else None


def test_a_query_without_weight_has_no_part_in_any_figure():
    weights = torch.tensor([[[[0.2, 0.8], [0.0, 0.0]]]], dtype=torch.float64)
    real, keys = torch.ones(1, 2, dtype=torch.bool), torch.tensor([[4, 5]])
    one, both = HeadSums(1), HeadSums(1)
    for sums, rows in ((one, 1), (both, 2)):
        shown, seen = weights[:, :, :rows], torch.ones(1, 1, rows, 2, dtype=torch.bool)
        decides = torch.zeros(1, rows, dtype=torch.long)
        sums.add(shown, seen, keys, real[:, :rows], ~real, decides)
    assert {name: one.mean(name, 0) for name in one.totals} == {
        name: both.mean(name, 0) for name in both.totals
    }
    assert one.mean("entropy", 0) > 0


@pytest.mark.parametrize("name", [ENCODER, DECODER, CROSS])
def test_figures_are_those_of_loops_over_every_weight(model, name):
    found = head_figures(model, PAIRS)[name][2]
    side = "read" if name == DECODER else "source"
    counts = Counter(token for pair in PAIRS for token in getattr(pair, side))
    rows = []
    for pair, weights, queries, keys in each(model, name, 2):
        words = [key for key in keys if key not in (BOS, EOS)]
        rarest = min((counts[key] for key in words), default=None)
        for t in range(len(queries)):
            seen = t + 1 if name == DECODER else len(keys)
            rare = [s for s in range(len(keys)) if keys[s] in words and counts[keys[s]] == rarest]
            rows.append((pair, t, weights[t], seen, keys, rare))
    entropies = [-sum(x * math.log(x) for x in row if x > 0) for _, _, row, *_ in rows]
    close = pytest.approx
    assert found.entropy == close(mean(entropies), rel=1e-6)
    relative = [e / math.log(r[3]) for e, r in zip(entropies, rows, strict=True) if r[3] > 1]
    assert found.relative_entropy == close(mean(relative), rel=1e-6)
    largest = (max(x for x, k in zip(r[2], r[4]) if k != EOS) for r in rows)
    assert found.confidence == close(mean(largest), rel=1e-6)
    marks = (sum(x for x, k in zip(r[2], r[4]) if k in (BOS, EOS)) for r in rows)
    assert found.mark == close(mean(marks), rel=1e-6)
    assert found.rare == close(mean(sum(r[2][s] for s in r[5]) for r in rows if r[5]), rel=1e-6)
    even = mean(sum(s < r[3] for s in r[5]) / r[3] for r in rows if r[5])
    assert found.rare_if_uniform == close(even, rel=1e-6)
    for field, place in (("before", -1), ("own", 0), ("after", 1)):
        beside = [r[2][r[1] + place] for r in rows if 0 <= r[1] + place < r[3]]
        expected = None if name == CROSS else mean(beside)
        assert getattr(found, field) == (None if expected is None else close(expected, rel=1e-6))


def shares(model, name, head):
    """How often the largest weight is at each place, of queries that see it and another."""
    hits = {place: [] for place in range(-3, 4)}
    for _, weights, queries, keys in each(model, name, head):
        for t in range(len(queries)):
            seen = t + 1 if name == DECODER else len(keys)
            best = max(range(seen), key=lambda s: weights[t][s])
            for place, known in hits.items():
                if seen > 1 and 0 <= t + place < seen:
                    known.append(best - t == place)
    return {place: mean(known) for place, known in hits.items() if known}


@pytest.mark.parametrize("name", [ENCODER, DECODER])
def test_the_commonest_place_is_found_among_those_that_queries_see(model, name):
    for head, found in enumerate(head_figures(model, PAIRS)[name]):
        expected = shares(model, name, head)
        assert found.positional == pytest.approx(max(expected.values()))
        assert expected[found.place] == pytest.approx(found.positional)


def test_alignment_is_how_often_the_largest_weight_is_on_the_token_that_decides(model):
    for head, found in enumerate(head_figures(model, PAIRS)[CROSS]):
        agreed = []
        for pair, weights, *_ in each(model, CROSS, head):
            decides = deciding_tokens(model, pair).tolist()
            assert decides[-1] == -1
            rows = zip(weights, decides)
            agreed += [max(range(len(row)), key=row.__getitem__) == d for row, d in rows if d >= 0]
        assert len(agreed) == 3 + 1 + 5
        assert found.alignment == pytest.approx(mean(agreed))


def test_the_token_that_decides_is_the_one_without_which_the_target_is_least_likely(model):
    pair = PAIRS[2]
    found = deciding_tokens(model, pair)
    for t, token in enumerate(pair.target[:-1]):
        likely = []
        for j in range(len(pair.source) - 1):
            without = torch.tensor([pair.source[:j] + pair.source[j + 1 :]])
            logits = model(without, torch.tensor([pair.read]))[0, t]
            likely.append(float(logits.log_softmax(dim=-1)[token]))
        assert int(found[t]) == likely.index(min(likely))
    assert deciding_tokens(model, Pair([4, EOS], [5, EOS])).tolist() == [-1, -1]


@pytest.mark.parametrize("name", ["mha", "moa", "luong_general"])
def test_batch_order_and_padding_change_no_figure(name, monkeypatch):
    made = make_recurrent(name) if "luong" in name else make_transformer(load_variant(name))
    together = head_figures(made, PAIRS)
    monkeypatch.setattr("seqattn.extras.explain.head_figures._BATCH", 1)
    alone = head_figures(made, PAIRS[::-1])
    assert together.keys() == alone.keys() != set()
    for attention, heads in together.items():
        for ours, theirs in zip(heads, alone[attention], strict=True):
            for one, other in zip(ours, theirs, strict=True):
                assert one == (None if other is None else pytest.approx(other, abs=1e-6))


def test_uniform_weights_have_all_of_the_entropy_and_are_broad(model):
    with intervene(model, weights={"*": uniform}):
        found = head_figures(model, PAIRS)
    for head in found[ENCODER]:
        assert head.relative_entropy == pytest.approx(1, abs=1e-6)
        sizes = [len(pair.source) for pair in PAIRS for _ in pair.source]
        assert head.entropy == pytest.approx(mean(map(math.log, sizes)), abs=1e-6)
        assert head.rare == pytest.approx(head.rare_if_uniform)
        assert head.role == "broad"


def test_a_mechanism_without_weights_has_no_figures():
    mixed = make_transformer(load_variant("xca"))
    assert {name.split(".")[0] for name in head_figures(mixed, PAIRS)} == {"decoder"}


def test_what_is_not_known_has_a_reason_and_is_drawn_as_such():
    mixed = make_transformer(load_variant("xca"), layers=(1, 1))
    name = "encoder.layers.0.self_attention"
    importance = head_importance(mixed, PAIRS)
    found = attention_heads(mixed, name, None, importance[name])
    assert (found.slot, found.layer, len(found.heads)) == ("encoder", 1, 4)
    assert {(head.role, head.figures) for head in found.heads} == {("unknown", None)}
    assert found.heads[1].importance == float(importance[name][1])
    assert found.reasons == ["XCAKernel has no weights over keys; only importance is shown"]
    recurrent = make_recurrent("luong_general")
    ((alignment, figures),) = head_figures(recurrent, PAIRS).items()
    other = attention_heads(recurrent, alignment, figures, None)
    assert other.reasons == [
        "it has one alignment and no heads to remove; importance is not defined"
    ]
    assert other.plain()["heads"][0]["importance"] is None
    drawn = head_map({name: found, alignment: other}, "heads")
    assert [axes.get_title() for axes in drawn.axes] == ["encoder", alignment]


def test_experts_have_figures_of_the_tokens_that_chose_them():
    mixture = make_transformer(load_choice("attention", "moa"))
    name = "encoder.layers.0.self_attention"
    attention = mixture.get_submodule(name)
    assert isinstance(attention, MixtureOfAttention)
    chosen, entropies = [], []
    with attention.register_forward_hook(
        lambda module, args, output: chosen.append(module.route(args[0]).chosen[0])
    ):
        for pair in PAIRS:
            with torch.no_grad(), capture(mixture) as maps:
                mixture.encode(torch.tensor([pair.source]))
            entropies.append(-torch.special.xlogy(w := maps[name][0][0].double(), w).sum(dim=-1).T)
    experts, values = torch.cat(chosen), torch.cat(entropies)  # (tokens, k)
    found = head_figures(mixture, PAIRS)[name]
    assert len(found) == attention.num_experts
    heads = attention_heads(mixture, name, found, None)
    numbers = [row[1] for row in heads_table({name: heads}, "val", len(PAIRS))["rows"]]
    assert numbers == [f"expert {number}" for number in range(1, len(found) + 1)]
    for number, head in enumerate(found):
        own = values[experts == number]
        if len(own):
            assert head.entropy == pytest.approx(float(own.mean()), rel=1e-5)
        else:
            assert (head.entropy, head.role) == (None, "unused")


def figures(**given):
    usual = dict.fromkeys(HeadFigures._fields, 0.1) | {"place": 0, "alignment": None}
    return HeadFigures(**usual | given)


ACROSS = {"positional": None, "before": None, "own": None, "after": None, "mark": 0.7}


@pytest.mark.parametrize(
    ("given", "role"),
    [
        ({"positional": 0.9, "mark": 0.9}, "positional"),
        ({"positional": 0.89, "mark": 0.5}, "end"),
        ({"mark": 0.5, "after": None}, "begin"),
        ({"mark": 0.49, "relative_entropy": 0.8}, "broad"),
        ({**ACROSS, "alignment": 0.5}, "alignment"),
        ({**ACROSS, "alignment": 0.4}, "end"),
        ({**ACROSS, "alignment": None}, "end"),  # where no source has a token that decides
        ({"relative_entropy": 0.79}, "mixed"),
        ({"entropy": None}, "unused"),
    ],
)
def test_the_role_is_the_first_that_reaches_its_threshold(given, role):
    assert figures(**given).role == role


def test_a_head_that_looks_at_the_token_before_is_positional():
    model = make_transformer(position=lambda stack: ShawPosition(stack, 2), layers=(1, 1))
    keys = model.encoder.position.at_layer(0).keys
    with torch.no_grad():
        keys.zero_()
        keys[3] = 100.0  # of the key one place before
        model.encoder.layers[0].self_attention.query.weight.zero_()
        model.encoder.layers[0].self_attention.query.bias.fill_(1.0)
    for head in head_figures(model, PAIRS)["encoder.layers.0.self_attention"]:
        assert (head.role, head.place) == ("positional", -1)
        assert head.before == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("name", ["mha", "moa"])
def test_figures_of_a_training_run_are_the_same(name):
    """A mixture's heads are its experts here and there."""
    model = make_transformer(load_choice("attention", name))
    pairs = [
        Pair(source[source != PAD].tolist(), [*read[read != PAD].tolist()[1:], EOS])
        for source, read in zip(SOURCE, TARGET)
    ]
    found = health.statistics_of(model, health.pass_over_texts(model, SOURCE, TARGET))
    for place, heads in head_figures(model, pairs).items():
        told = [one.relative_entropy for one in heads]
        wanted = torch.tensor([torch.nan if one is None else one for one in told])
        torch.testing.assert_close(found[place].entropy, wanted, equal_nan=True)
        if place.startswith("encoder"):
            marks = torch.tensor([torch.nan if one.mark is None else one.mark for one in heads])
            torch.testing.assert_close(found[place].end, marks, equal_nan=True)
