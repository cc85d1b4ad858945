"""A linear map that goes step by step, against the same over all steps at once."""

import pytest
import torch
import torch.nn.functional as F

from seqattn.ops.stepwise import StepLinear
from tests.comparing import close

B, T, OUT, WIDTHS = 2, 5, 7, (3, 6)


@pytest.mark.usefixtures("either_cpu")
def test_steps_are_the_whole_sequence_in_value_and_gradient():
    wide = torch.randn(OUT, sum(WIDTHS), requires_grad=True)  # parts of one matrix, with gaps
    base = torch.randn(B, T, OUT, requires_grad=True)
    inputs = [torch.randn(B, T, width, requires_grad=True) for width in WIDTHS]
    pull, leaves = torch.randn(B, T, OUT), (wide, base, *inputs)
    steps = StepLinear(base, wide.split(WIDTHS, dim=1))
    out = torch.stack([steps(t, [x[:, t] for x in inputs]) for t in range(T)], dim=1)
    wanted = base + F.linear(torch.cat(inputs, dim=2), wide)
    close(out, wanted)
    got = torch.autograd.grad(out, leaves, pull)
    for ours, theirs in zip(got, torch.autograd.grad(wanted, leaves, pull), strict=True):
        close(ours, theirs, 1e-4)
