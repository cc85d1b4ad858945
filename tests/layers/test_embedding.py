"""Embeddings written out."""

import math

import torch

from seqattn.layers.embedding import Embedding, make_table
from seqattn.ops.layers import Dropout
from seqattn.positions import LearnedPosition, Position, Stack
from tests.builders import randomised

V, D = 9, 6


def test_rows_are_scaled_by_the_root_of_the_width_and_positions_are_added():
    table, position = make_table(V, D), LearnedPosition(Stack(D, 2), max_length=7)
    ids, positions = torch.tensor([[3, 8, 0], [1, 1, 5]]), torch.tensor([[0, 1, 2], [0, 0, 6]])
    out = Embedding(table, Dropout(0.0), position)(ids, positions)
    for b in range(2):
        for t in range(3):
            expected = table.weight[ids[b, t]] * math.sqrt(D)
            expected = expected + position.table.weight[positions[b, t]]
            torch.testing.assert_close(out[b, t], expected)


def test_scaled_rows_have_unit_variance():
    torch.manual_seed(0)
    table = make_table(2000, 50)
    rows = Embedding(table, Dropout(0.0), Position(Stack(50, 1)))(
        torch.arange(2000)[None], torch.arange(1)
    )
    spread = rows.square().sum().item()
    assert abs(spread - 100_000) < 4 * math.sqrt(2 * 100_000)  # chi-square of 100 000 normals


def test_dropout_covers_rows_and_positions_alike():
    embedding = Embedding(
        make_table(V, D), Dropout(0.5), LearnedPosition(Stack(D, 2), max_length=50)
    )
    ids, positions = torch.full((4, 50), 3), torch.arange(50)
    out = embedding(ids, positions)
    exact = embedding.eval()(ids, positions)
    kept = out != 0
    assert 0 < kept.sum() < kept.numel()
    torch.testing.assert_close(out[kept], 2 * exact[kept])


def test_a_scale_may_replace_the_root_and_a_norm_may_follow_the_positions():
    table, position = make_table(V, D), LearnedPosition(Stack(D, 2), max_length=7)
    norm = randomised(torch.nn.LayerNorm(D))
    embedding = Embedding(table, Dropout(0.0), position, scale=1.5, norm=norm)
    out = embedding(torch.tensor([[3, 8]]), torch.arange(2))
    for t, word in enumerate((3, 8)):
        total = table.weight[word] * 1.5 + position.table.weight[t]
        centred = (total - total.mean()) / (total.var(unbiased=False) + norm.eps).sqrt()
        torch.testing.assert_close(out[0, t], centred * norm.weight + norm.bias)
