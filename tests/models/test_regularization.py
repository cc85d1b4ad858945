"""Words, heads and layers that are left out in training, and in training alone."""

import pytest
import torch

from seqattn.attention.base import Attention
from seqattn.attention.masks import Mask
from seqattn.layers.embedding import Embedding, make_table
from seqattn.positions.base import Position, Stack
from seqattn.tokens import PAD
from tests.builders import DIM, load_variant, make_attention, make_transformer, padded
from tests.models.recurrents import make_recurrent
from tests.training.tasks.test_effective_batch import assert_same

SOURCES = padded([[4, 9, 7, 3], [5, 6, 8, 10, 3]])
TARGETS = padded([[2, 8, 5], [2, 5, 9, 6]])
NAMES = ("word_dropout", "drop_heads", "layer_drop")


def outputs(model):
    torch.manual_seed(5)
    return model(SOURCES, TARGETS)


MAKERS = {
    "transformer": make_transformer,
    "copying": lambda **config: make_transformer(copy=True, **config),
    "experts": lambda **config: make_transformer(load_variant("moa"), **config),
    "bahdanau": make_recurrent,
    "luong": lambda **config: make_recurrent("luong_general", input_feeding=True, **config),
}


CASES = [
    (family, name)
    for family in MAKERS
    for name in (NAMES if family in ("transformer", "copying", "experts") else NAMES[:1])
]


@pytest.mark.parametrize(("family", "name"), CASES)
def test_only_training_leaves_anything_out_and_as_its_seed_says(family, name):
    make = MAKERS[family]
    model, plain = make(**{name: 0.4}), make()
    assert torch.equal(outputs(model), outputs(plain))
    model.train(), plain.train()
    first = outputs(model)
    assert torch.equal(first, outputs(model))
    assert not torch.allclose(first, outputs(plain), atol=1e-4)
    first.sum().backward()
    trained = [p.grad for p in model.parameters()]
    outputs(plain).sum().backward()
    assert all((p.grad is None) == (mine is None) for p, mine in zip(plain.parameters(), trained))


def test_whole_words_are_dropped_and_the_others_scaled():
    table = make_table(12, 6)
    embedding = Embedding(table, torch.nn.Identity(), word_dropout=0.25).train()
    ids = torch.randint(4, 12, (50, 80))
    ratio = embedding(ids) / (table(ids) * embedding.scale)
    dropped = ratio[..., 0] == 0
    torch.testing.assert_close(ratio, torch.where(dropped, 0.0, 4 / 3)[..., None].expand_as(ratio))
    assert 0.22 < dropped.float().mean() < 0.28
    assert dropped.any(dim=0).all()  # a word of another sentence is drawn anew


def test_a_dropped_word_still_says_where_it_stands():
    class Places(Position):
        def embed(self, x, positions):
            return x + 1 + positions[:, None]

    embedding = Embedding(
        make_table(12, 6), torch.nn.Identity(), Places(Stack(6, 1)), word_dropout=0.5
    ).train()
    x = embedding(torch.randint(4, 12, (9, 7)), torch.arange(7))
    alone = (torch.arange(7.0) + 1)[None, :, None].expand_as(x)
    assert 10 < (x == alone).all(dim=2).sum() < 53


class Told(Attention):
    """Heads whose factors are looked at."""

    def __init__(self, heads, drop_heads):
        super().__init__()
        self.num_heads, self.drop_heads = heads, drop_heads

    mix = make_cache = project = forward = None


Told.__abstractmethods__ = frozenset()


def test_heads_are_dropped_for_each_sentence_and_those_that_are_left_make_up_for_them():
    """Zhou et al. 2020: times H by the number of heads that are left."""
    factors = Told(4, 0.3).train().head_factors(torch.empty(4000, 1))
    assert factors.shape == (4000, 4)
    left = (factors > 0).sum(dim=1)
    assert set(left.tolist()) == {0, 1, 2, 3, 4}
    torch.testing.assert_close(factors.sum(dim=1), torch.where(left > 0, 4.0, 0.0))
    torch.testing.assert_close((factors == 0).float().mean(dim=0), torch.full((4,), 0.3),
                               atol=0.04, rtol=0)  # fmt: skip
    assert all(len(row[row > 0].unique()) <= 1 for row in factors[:50])
    told = Told(4, 0.3).train()
    told.gates = torch.tensor([1.0, 0.0, 2.0, 1.0])
    torch.manual_seed(2)
    gated = told.head_factors(torch.empty(7, 1))
    torch.manual_seed(2)
    told.gates = None
    assert torch.equal(gated, told.head_factors(torch.empty(7, 1)) * torch.tensor([1.0, 0, 2, 1]))


@pytest.mark.parametrize("name", ["mha", "gqa", "linear", "entmax", "moa"])
def test_a_head_that_is_dropped_is_one_whose_gate_is_shut(name):
    attention = make_attention(load_variant(name)).eval()
    x, real = torch.randn(1, 5, DIM), torch.ones(1, 5, dtype=torch.bool)
    factors = torch.rand(1, attention.gated_heads)
    no_position = Position(Stack(DIM, attention.position_heads))
    attention.gates = factors[0]
    gated = attention.mix(x, Mask.full(real), no_position)
    attention.gates = None
    attention.head_factors = lambda rows: factors
    torch.testing.assert_close(attention.mix(x, Mask.full(real), no_position), gated)


def test_a_sentence_whose_layers_are_all_left_out_is_as_it_was_embedded():
    model = make_transformer(layer_drop=0.999, pre_norm=False).train()
    torch.manual_seed(0)
    real = SOURCES != PAD
    x = model.source_embedding(SOURCES, Mask.full(real).query_positions)
    outputs = model.encode(SOURCES).outputs
    assert torch.equal(outputs, x)
    outputs.sum().backward()
    layer = list(model.encoder.layers.parameters())
    assert_same([p.grad for p in layer], [torch.zeros_like(p) for p in layer], 0.0)


def test_layers_are_left_out_as_often_as_asked_for_each_sentence():
    stack = make_transformer(layer_drop=0.3).train().encoder
    x, output = torch.zeros(3000, 2, 1), torch.ones(3000, 2, 1)
    kept = stack.drop_layer(x, output)
    assert torch.equal(kept[:, 0], kept[:, 1])
    assert 0.67 < kept.mean() < 0.73
