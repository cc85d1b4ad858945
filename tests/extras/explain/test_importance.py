"""The importance of heads: by finite differences, and the same however sentences come."""

import pytest
import torch

from seqattn.analysis import intervene
from seqattn.analysis.pairs import Pair
from seqattn.extras.explain.importance import (
    by_attention,
    gates_without,
    head_importance,
    least_first,
    random_order,
)
from seqattn.tokens import EOS
from tests.builders import load_variant, make_transformer
from tests.models.recurrents import make_recurrent

PAIRS = [Pair([4, 5, 6, 5, EOS], [7, 8, 7, EOS]), Pair([9, 4, EOS], [8, EOS])]


@torch.no_grad()
def loss(model, pair, name, head, gate):
    gates = torch.ones(model.get_submodule(name).gated_heads, dtype=torch.float64)
    gates[head] = gate
    rows = (torch.tensor([row]) for row in (pair.source, pair.read, pair.target))
    with intervene(model, gates={name: gates.float()}):
        return float(model.loss(*rows).nll)


@pytest.mark.parametrize("variant", ["mha", "linear", "xca", "moa", "mha that copies"])
def test_importance_is_the_mean_slope_of_the_loss_by_finite_differences(variant):
    name, _, copies = variant.partition(" ")
    model = make_transformer(load_variant(name), layers=(1, 1), copy=bool(copies)).double()
    found = head_importance(model, PAIRS)
    assert len(found) == 3
    step = 2**-12
    for name, heads in found.items():
        for head in range(len(heads)):
            slopes = [
                (loss(model, pair, name, head, 1 + step) - loss(model, pair, name, head, 1 - step))
                / (2 * step)
                for pair in PAIRS
            ]
            tokens = sum(len(pair.target) for pair in PAIRS)
            assert float(heads[head]) == pytest.approx(sum(map(abs, slopes)) / tokens, abs=2e-5)


def test_each_attention_has_a_norm_of_1_and_one_that_does_nothing_has_zeros():
    found = by_attention({"a": torch.tensor([3.0, 4.0]), "b": torch.zeros(3)})
    assert found["a"].tolist() == pytest.approx([0.6, 0.8])
    assert found["b"].tolist() == [0, 0, 0]


def test_a_recurrent_model_has_no_heads_to_gate():
    assert head_importance(make_recurrent("luong_general"), PAIRS) == {}


def test_orders_hold_every_head_once_the_least_important_first_or_by_seed():
    scores = {"a": torch.tensor([0.3, 0.1]), "b": torch.tensor([0.2, 0.4, 0.0])}
    order = least_first(scores)
    assert order == [("b", 2), ("a", 1), ("b", 0), ("a", 0), ("b", 1)]
    assert sorted(random_order(scores, 1)) == sorted(order)
    assert random_order(scores, 1) == random_order(scores, 1) != random_order(scores, 2)


def test_gates_take_out_the_heads_that_are_named_and_no_others():
    model = make_transformer(layers=(1, 1))
    gates = gates_without(model, [("decoder.layers.0.cross_attention", 2)])
    assert {name: of.tolist() for name, of in gates.items()} == {
        "encoder.layers.0.self_attention": [1, 1, 1, 1],
        "decoder.layers.0.self_attention": [1, 1, 1, 1],
        "decoder.layers.0.cross_attention": [1, 1, 0, 1],
    }
