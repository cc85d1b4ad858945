"""Tables by distance: how much of them is read, and how precisely their gradients are summed."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from seqattn.positions import DeBERTaPosition, Stack
from seqattn.positions.relative import collect, reached, read, table_rows


class Sums(TorchDispatchMode):
    """Notes the types that additions by index work in."""

    def __init__(self):
        super().__init__()
        self.types = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if "scatter_add" in function.name():
            self.types.append(args[0].dtype)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_sums_over_pairs_are_taken_in_float32_at_least(dtype):
    """On an accelerator each addition rounds, and the sum of many would stop growing."""
    rows = table_rows(torch.arange(5), torch.arange(7), lowest=-2, size=5)
    values = torch.randn(2, 4, 5, 5, dtype=dtype, requires_grad=True)
    weights = torch.rand(2, 4, 5, 7, dtype=dtype)
    with Sums() as sums:
        read(values, rows, dtype).sum().backward()
        assert collect(weights, rows, 5).dtype == dtype
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    assert sums.types == [wide, wide]
    assert values.grad.dtype == dtype


@pytest.mark.parametrize(
    ("q_positions", "k_positions", "first", "end"),
    [
        (torch.arange(3), torch.arange(4), 17, 23),
        (torch.tensor([50]), torch.arange(48, 51), 20, 23),
        (torch.tensor([50]), torch.arange(3), 39, 40),
        (torch.tensor([[9], [2]]), torch.arange(3), 20, 30),
    ],
)
def test_a_small_block_reaches_only_its_stretch_of_a_large_table(
    q_positions, k_positions, first, end
):
    rows = table_rows(q_positions, k_positions, lowest=-20, size=40)
    moved, stretch = reached(rows, 40)
    assert (stretch.start, stretch.stop) == (first, end)
    assert torch.equal(torch.arange(40)[stretch][moved], rows)


def test_a_block_that_could_reach_all_of_a_table_is_not_searched():
    rows = table_rows(torch.arange(3), torch.arange(3), lowest=-3, size=6)
    same, stretch = reached(rows, 6)
    assert same is rows
    assert stretch == slice(0, 6)


def test_deberta_projects_no_more_vectors_than_a_block_reaches():
    position = DeBERTaPosition(Stack(24, 4), max_relative_positions=20).at_layer(0)
    projected = []
    for projection in (position.key, position.query):
        projection.register_forward_hook(lambda _, args, out: projected.append(len(out)))
    q, k = torch.randn(2, 4, 1, 6), torch.randn(2, 2, 9, 6)
    position.score_term(q, k, torch.tensor([8]), torch.arange(9))
    assert projected == [9, 9]
