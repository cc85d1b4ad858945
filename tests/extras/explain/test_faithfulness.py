"""Faithfulness is what a plain loop over tokens finds, for every family of models."""

import math

import pytest
import torch

from seqattn.analysis.pairs import Pair
from seqattn.analysis.word_alignment import align
from seqattn.extras.explain.alignment_error import AlignmentErrorRate
from seqattn.extras.explain.explanations import explain
from seqattn.extras.explain.faithfulness import (
    PERCENTS,
    judge,
    kendall,
    random_contributions,
)
from seqattn.tokens import BOS, EOS
from tests.builders import load_variant, make_transformer, random_ids
from tests.extras.explain.copying_model import PI, copied, copying_model
from tests.models.recurrents import make_recurrent

LENGTHS = ((7, 4), (2, 3), (5, 6))
"""Tokens of each source and target, ends included."""
MODELS = {
    "transformer": make_transformer,
    "linear": lambda: make_transformer(load_variant("linear")),
    "recurrent": lambda: make_recurrent("luong_general"),
    "no attention": lambda: make_recurrent("none"),
}


def pairs():
    ids = (random_ids(length, seed=length).tolist() for pair in LENGTHS for length in pair)
    ended = [[*row[:-1], EOS] for row in ids]
    return [Pair(*sides) for sides in zip(ended[::2], ended[1::2])]


def probability(model, source, target, t):
    with torch.no_grad():
        logits = model(torch.tensor([source]), torch.tensor([[BOS, *target[:-1]]]))
    return float(logits[0, t].double().softmax(dim=0)[target[t]])


def looped(model, contributions):
    """Comprehensiveness, sufficiency and both curves, one token after the other."""
    drops, left, removed, kept = [], [], [], []
    for pair, given in zip(pairs(), contributions):
        *tokens, end = pair.source
        for t in range(len(pair.target)):
            whole = probability(model, pair.source, pair.target, t)
            order = sorted(range(len(tokens)), key=lambda place: -float(given[t, place]))
            rows = ([], [])
            for percent in PERCENTS:
                top = order[: math.ceil(round(percent * len(tokens)) / 100)]
                for row, keeps in zip(rows, (False, True)):
                    part = [token for place, token in enumerate(tokens) if (place in top) == keeps]
                    row.append(probability(model, [*part, end], pair.target, t))
            removed.append(rows[0])
            kept.append(rows[1])
            drops.append(whole - sum(rows[0]) / len(PERCENTS))
            left.append(whole - sum(rows[1]) / len(PERCENTS))
    curves = (torch.tensor(rows).double().mean(dim=0).tolist() for rows in (removed, kept))
    return [sum(drops) / len(drops), sum(left) / len(left), *curves]


@pytest.mark.parametrize("name", MODELS)
def test_it_is_what_a_loop_finds(name):
    model = MODELS[name]()
    given = random_contributions(pairs(), seed=3)
    found = judge(model, pairs(), {"some": given}).methods["some"]
    drop, left, removed, kept = looped(model, given)
    assert found.comprehensiveness == pytest.approx(drop, abs=1e-6)
    assert found.sufficiency == pytest.approx(left, abs=1e-6)
    assert found.removed == pytest.approx(removed, abs=1e-6)
    assert found.kept == pytest.approx(kept, abs=1e-6)
    assert abs(drop) > 1e-4 < abs(left)


def test_leave_one_out_agrees_with_itself_and_chance_does_not():
    model, sides = make_transformer(), pairs()
    drops = []
    for pair in sides:
        part = torch.zeros(len(pair.target), len(pair.source))
        for t in range(len(pair.target)):
            for place in range(len(pair.source) - 1):
                without = [token for at, token in enumerate(pair.source) if at != place]
                part[t, place] = -probability(model, without, pair.target, t)
        drops.append(part)
    given = {"itself": drops, "reversed": [-one for one in drops]}
    given["chance"] = random_contributions(sides)
    found = {name: one.correlation for name, one in judge(model, sides, given).methods.items()}
    assert found["itself"] == pytest.approx(1)
    assert found["reversed"] == pytest.approx(-1)
    assert abs(found["chance"]) < 0.5


def test_chance_is_the_same_for_a_seed_and_another_for_another():
    one, same, other = (random_contributions(pairs(), seed) for seed in (0, 0, 1))
    assert [tuple(part.shape) for part in one] == [(t, s) for s, t in LENGTHS]
    assert all(torch.equal(*both) for both in zip(one, same))
    assert not any(torch.equal(*both) for both in zip(one, other))


def test_a_share_of_few_tokens_is_rounded_up_and_at_least_one():
    """Of 30 tokens 20 % are 6, though 0.2 * 30 is more in floating point; 1 % are one."""
    model = make_recurrent("none")
    pair = Pair([*random_ids(30).tolist(), EOS], [9, EOS])
    given = torch.arange(31.0).flip(0).expand(2, 31)
    found = judge(model, [pair], {"first": [given]}).methods["first"]
    kept = [
        sum(probability(model, [*pair.source[:count], EOS], pair.target, t) for t in (0, 1)) / 2
        for count in (1, 2, 3, 6, 15)
    ]
    assert found.kept == pytest.approx(kept, abs=1e-6)


def test_kendalls_tau_counts_pairs_in_order_and_corrects_for_ties():
    first = torch.tensor([[1.0, 2, 3, 4], [1, 1, 2, 2], [5, 5, 5, 5]])
    second = torch.tensor([[1.0, 2, 4, 3], [1, 2, 3, 4], [1, 2, 3, 4]])
    found = kendall(first, second).tolist()
    assert found[:2] == pytest.approx([4 / 6, 4 / math.sqrt(4 * 6)])
    assert math.isnan(found[2])


def test_a_model_that_copies_from_pi_has_no_alignment_error():
    """Words are tokens; the end of the source, which is copied too, is no word on either side."""
    model = copying_model()
    source = torch.tensor([[5, 6, 7, 8, 9, EOS]])
    target = copied(source)
    pieces = [
        ["</s>" if token == EOS else f"▁w{token}" for token in ids[0].tolist()]
        for ids in (source, target)
    ]
    gold = {(0, 1), (1, 0), (2, 3), (3, 2), (4, 4)}
    assert [PI[t] for t in range(6)] == [1, 0, 3, 2, 5, 4]
    rates = {}
    for name, weights in (
        ("attention", explain(model, source, target, "attention").source[0]),
        ("random", random_contributions([Pair(*map(torch.flatten, (source, target)))])[0]),
    ):
        metric = AlignmentErrorRate()
        metric.update({(i, j) for j, i in enumerate(align(weights, *pieces).links)}, gold, gold)
        rates[name] = float(metric.compute())
    assert rates["attention"] == 0
    assert rates["random"] > 20
