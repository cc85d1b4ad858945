"""Mamba-2 against transformers, its two forms against each other, and its options."""

import pytest
import torch
from transformers import Mamba2Config
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

from seqattn.errors import UserError
from seqattn.extras.mixers.mamba2 import states_by_chunk, states_by_token
from seqattn.positions import Position, Stack
from seqattn.settings.assembly import Architecture
from seqattn.settings.choices import choices
from tests.builders import causal_mask
from tests.extras.mixers.choices import factory, mixer
from tests.tolerance import close

DIM, HEADS, STATE, WIDTH = 12, 4, 5, 3


def twins(bias):
    """Our mixer and that of transformers, with the same random weights."""
    ours = mixer("mamba2", DIM, expand=2, state_dim=STATE, conv_width=WIDTH, bias=bias)
    config = Mamba2Config(
        hidden_size=DIM, num_heads=HEADS, head_dim=2 * DIM // HEADS, state_size=STATE,
        n_groups=1, expand=2, conv_kernel=WIDTH, chunk_size=4, use_bias=bias,
        num_hidden_layers=1, layer_norm_epsilon=1e-5,
    )  # fmt: skip
    theirs = Mamba2Mixer(config, 0).eval()
    pairs = {
        theirs.in_proj.weight: ours.inner.weight,
        theirs.conv1d.weight: ours.convolution.weight,
        theirs.conv1d.bias: ours.convolution.bias,
        theirs.dt_bias: ours.step_bias,
        theirs.A_log: ours.log_rates,
        theirs.D: ours.skip,
        theirs.norm.weight: ours.scale,
        theirs.out_proj.weight: ours.output.weight,
    }
    if bias:
        pairs |= {theirs.in_proj.bias: ours.inner.bias, theirs.out_proj.bias: ours.output.bias}
    assert len(pairs) == len(list(theirs.parameters())) == len(list(ours.parameters()))
    with torch.no_grad():
        for their, our in pairs.items():
            their.copy_(our)
    return ours, theirs, pairs


@pytest.mark.parametrize("bias", [False, True])
def test_values_and_gradients_are_those_of_transformers(bias):
    ours, theirs, pairs = twins(bias)
    blank = 0 if bias else 4  # theirs lets the bias of padding into the convolution
    real = torch.tensor([[1] * 11, [0] * blank + [1] * (11 - blank)], dtype=torch.bool)
    x = torch.randn(2, 11, DIM, requires_grad=True)
    expected = theirs(x, attention_mask=real.float())
    got = ours.mix(x, causal_mask(real), Position(Stack(DIM, 1)))
    close(got[real], expected[real])
    factor = torch.randn(int(real.sum()), DIM)
    (of_input,) = torch.autograd.grad((expected[real] * factor).sum(), x, retain_graph=True)
    (expected[real] * factor).sum().backward()
    x.grad = None
    (got[real] * factor).sum().backward()
    close(x.grad[real], of_input[real], 1e-4)
    for their, our in pairs.items():
        close(our.grad, their.grad, 1e-4)


@pytest.mark.parametrize("chunk", [1, 3, 4, 50])
@pytest.mark.parametrize("groups", [1, 2])
def test_chunks_give_what_the_plain_loop_gives_from_any_state(groups, chunk):
    def random(*shape):
        return torch.randn(2, *shape, dtype=torch.float64, requires_grad=True)

    inputs = [random(11, 4, 3), random(11, 4), random(11, groups, 5), random(11, groups, 5)]
    inputs.append(random(4, 3, 5))
    results = []
    for form in (states_by_token, states_by_chunk):
        new, decay, keys, queries, before = inputs
        y, after = form(new, -decay.square(), keys, queries, before, chunk)
        loss = y.sin().sum() + after.cos().sum()
        results.append([y, after, *torch.autograd.grad(loss, inputs)])
    for got, expected in zip(*results):
        torch.testing.assert_close(got, expected, atol=1e-10, rtol=1e-9)


def test_step_sizes_and_rates_begin_where_the_paper_has_them():
    torch.manual_seed(0)
    fresh = factory("mamba2", num_heads=64)(query_dim=32, memory_dim=32)
    steps = torch.nn.functional.softplus(fresh.step_bias)
    assert ((steps > 0.0009) & (steps < 0.101)).all()
    assert steps.min() < 0.003
    assert steps.max() > 0.03
    rates = fresh.log_rates.exp()
    assert ((rates >= 1) & (rates <= 16)).all()
    assert rates.max() - rates.min() > 10


@pytest.mark.parametrize("heads", [3, 10])
def test_a_number_of_heads_that_is_odd_or_does_not_divide_the_width_is_refused(heads):
    node = choices("attention")["mamba2"] | {"num_heads": heads}
    model = choices("model")["transformer"] | {"dim": 16}
    line = r"^attention.num_heads must be even and divide 2 \* model.dim \(32\), got "
    with pytest.raises(UserError, match=line):
        Architecture.of({"model": model, "attention": node}).check()
