"""What holds of one attention after another, as in a stack of layers."""

import pytest
import torch

from tests.builders import (
    DIM,
    abilities_of,
    attention_variants,
    causal_mask,
    load_variant,
    make_attention,
    make_position,
)
from tests.builders import POSITIONS as SCHEMES

T = 5


@pytest.mark.parametrize("name", [n for n in attention_variants() if abilities_of(n).causal])
@pytest.mark.parametrize(("before", "after"), [(0, 3), (3, 0), (2, 2)])
def test_no_real_token_depends_on_padding_or_on_later_ones_through_padding(name, before, after):
    position = make_position(SCHEMES["rope"])
    real = torch.zeros(2, before + T + after, dtype=torch.bool)
    real[0, before : before + T] = real[1, before + 1 : before + T - 1] = True
    x = torch.randn(*real.shape, DIM, requires_grad=True)
    out, mask = x, causal_mask(real)
    for seed in (0, 1):
        attention = make_attention(load_variant(name), seed=seed)
        out = out + attention(out, attention.project(out), mask, position).output
    for place in range(before, before + T):
        rows = real[:, place]
        (gradient,) = torch.autograd.grad(out[rows, place].sum(), x, retain_graph=True)
        assert (gradient[~real] == 0).all()
        assert (gradient[:, place + 1 :] == 0).all()
        assert (gradient[rows, place] != 0).any()
