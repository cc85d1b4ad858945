"""Gated DeltaNet: chunks against the loop, and both against `transformers`."""

from itertools import product

import pytest
import torch
import torch.nn.functional as F

from seqattn.errors import UserError
from seqattn.extras.mixers.gated_deltanet import GatedDeltaNet, Steps, chunked, loop
from seqattn.positions import Position, Stack
from tests.builders import DIM, HEADS, causal_mask, randomised
from tests.pages import program

B, H, T, DK, DV = 2, 3, 11, 4, 5


@pytest.fixture
def qwen():
    return pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")


def steps(seed=0, least=-2.0, kind=torch.float64):
    """Random steps, with log decays from `least` to 0."""
    source = torch.Generator().manual_seed(seed)
    drawn = [torch.randn(B, H, T, width, generator=source, dtype=kind) for width in (DK, DK, DV)]
    gates = [torch.rand(B, H, T, generator=source, dtype=kind) for _ in range(2)]
    queries, keys = (F.normalize(part, dim=-1) for part in drawn[:2])
    parts = (queries, keys, drawn[2], least * gates[0], gates[1])
    return Steps(*(part.requires_grad_() for part in parts))


def first_state(seed=1, kind=torch.float64):
    source = torch.Generator().manual_seed(seed)
    return torch.randn(B, H, DK, DV, generator=source, dtype=kind).requires_grad_()


def gradients(outputs, inputs):
    """The gradients of all outputs, each with weights of its own so that none cancel."""
    total = sum((part * part.detach().cos()).sum() for part in outputs)
    return torch.autograd.grad(total, inputs)


@pytest.mark.parametrize("state", [first_state(), None], ids=["begun", "from zeros"])
@pytest.mark.parametrize("chunk", [1, 2, 3, T - 1, T, T + 1, 64])
def test_chunks_of_any_size_equal_the_loop_in_value_and_gradient(chunk, state):
    inputs = steps()
    leaves = inputs if state is None else (*inputs, state)
    expected, got = loop(inputs, state), chunked(inputs, state, chunk)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(gradients(got, leaves), gradients(expected, leaves))


def test_the_loop_is_the_published_recurrence():
    inputs, state = steps(), first_state()
    outputs, after = loop(inputs, state)
    for b, h in product(range(B), range(H)):
        *vectors, decay, write = (part[b, h] for part in inputs)
        gates = (decay.exp(), write)
        expected = program("arithmetic.py").delta_steps(*vectors, *gates, state[b, h].mT)
        torch.testing.assert_close((outputs[b, h], after[b, h].mT), expected)


def test_a_state_carried_from_part_to_part_equals_one_pass():
    inputs, state = steps(), first_state()
    expected, after = chunked(inputs, state, 4)
    outputs = []
    for parts in zip(*(part.split((5, 1, T - 6), dim=2) for part in inputs)):
        output, state = chunked(Steps(*parts), state, 4)
        outputs.append(output)
    torch.testing.assert_close(torch.cat(outputs, dim=2), expected)
    torch.testing.assert_close(state, after)


@pytest.mark.parametrize("apply", [loop, chunked])
def test_a_token_without_decay_and_writing_leaves_the_state_and_later_outputs_unmoved(apply):
    inputs, state = steps(), first_state()
    expected, after = apply(inputs, state)
    places = torch.tensor([0, 1, 5, 6])  # of 4 tokens put between the others
    real = torch.ones(T + 4, dtype=torch.bool)
    real[places] = False
    wider = [part.new_zeros(B, H, T + 4, *part.shape[3:]) for part in inputs]
    for number, (wide, part) in enumerate(zip(wider, inputs)):
        wide[:, :, real] = part.detach()
        wide[:, :, ~real] = 7.0 if number < 3 else 0.0
    got, then = apply(Steps(*wider), state)
    torch.testing.assert_close(got[:, :, real], expected)
    torch.testing.assert_close(then, after)


def test_full_writing_of_a_key_of_length_one_overwrites_its_entry():
    inputs, state = steps(), first_state()
    inputs = inputs._replace(queries=inputs.keys, write=torch.ones_like(inputs.write))
    torch.testing.assert_close(chunked(inputs, state, 4)[0], inputs.values)


@pytest.mark.parametrize("least", [0.0, -1e-4, -300.0])
def test_float32_is_as_precise_with_weak_and_with_strong_decay(least):
    inputs, state = steps(least=least), first_state()
    single = Steps(*(part.detach().float().requires_grad_() for part in inputs))
    begin = state.detach().float().requires_grad_()
    got, expected = chunked(single, begin, 4), loop(inputs, state)
    torch.testing.assert_close(got[0].double(), expected[0], rtol=1e-5, atol=1e-5)
    pairs = zip(gradients(got, (*single, begin)), gradients(expected, (*inputs, state)))
    for one, other in pairs:
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-4)


def test_gradients_match_finite_differences():
    inputs = [part[:1, :1, :4] for part in steps()]
    state = first_state()[:1, :1]
    leaves = [part.detach().requires_grad_() for part in (*inputs, state)]
    assert torch.autograd.gradcheck(lambda *xs: chunked(Steps(*xs[:5]), xs[5], 3), leaves)


@pytest.mark.parametrize("apply", [loop, chunked])
@pytest.mark.parametrize("name", ["chunk", "recurrent"])
def test_both_forms_equal_those_of_transformers_in_value_and_gradient(name, apply, qwen):
    inputs, state = steps(kind=torch.float32), first_state(kind=torch.float32)  # as theirs round
    q, k, v, log_decay, write = (part.transpose(1, 2) for part in inputs)
    options = {"g": log_decay, "beta": write, "initial_state": state, "output_final_state": True}
    theirs = getattr(qwen, f"torch_{name}_gated_delta_rule")
    outputs, after = theirs(q * DK**0.5, k, v, **options)  # they scale queries
    got, expected = apply(inputs, state), (outputs.transpose(1, 2), after)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    both = (gradients(pair, (*inputs, state)) for pair in (got, expected))
    torch.testing.assert_close(*both, rtol=1e-4, atol=1e-4)


def twin_of(ours, qwen):
    """The block of `transformers` with our weights."""
    key, value = ours.key_dim, ours.head_dim
    config = qwen.Qwen3NextConfig(
        hidden_size=DIM, linear_num_key_heads=HEADS, linear_num_value_heads=HEADS,
        linear_key_head_dim=key, linear_value_head_dim=value, linear_conv_kernel_dim=3,
    )  # fmt: skip
    theirs = qwen.Qwen3NextGatedDeltaNet(config, layer_idx=0)
    filters = (
        ours.convolution.weight[:, 0].unflatten(0, (HEADS, -1)).split((key, key, value), dim=1)
    )
    with torch.no_grad():
        theirs.in_proj_qkvz.weight.copy_(ours.projection.weight)
        decay, write = ours.gates.weight.chunk(2)
        theirs.in_proj_ba.weight.copy_(torch.stack((write, decay), dim=1).flatten(0, 1))
        theirs.conv1d.weight[:, 0] = torch.cat([part.flatten(0, 1) for part in filters])
        theirs.A_log.copy_(ours.log_rates)
        theirs.dt_bias.copy_(ours.step_bias)
    theirs.norm.load_state_dict(ours.norm.state_dict())
    theirs.out_proj.load_state_dict(ours.output.state_dict())
    return theirs


@pytest.mark.parametrize("padding", [0, 2])
def test_the_whole_block_equals_that_of_transformers_in_value_and_gradient(padding, qwen):
    torch.manual_seed(0)
    ours = randomised(GatedDeltaNet(DIM, DIM, HEADS, conv_width=3, chunk=4))
    theirs = twin_of(ours, qwen)
    x = torch.randn(B, T, DIM, requires_grad=True)
    real = torch.ones(B, T, dtype=torch.bool)
    real[0, :padding] = False
    got = ours.mix(x, causal_mask(real), Position(Stack(DIM, HEADS)))[real]
    expected = theirs(x, attention_mask=real)[real]
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    names = ("log_rates", "step_bias", "norm.weight", "projection.weight", "output.weight")
    twins = ("A_log", "dt_bias", "norm.weight", "in_proj_qkvz.weight", "out_proj.weight")
    torch.testing.assert_close(
        gradients([got], [x, *map(ours.get_parameter, names)]),
        gradients([expected], [x, *map(theirs.get_parameter, twins)]),
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize(("heads", "options"), [(3, {}), (10, {}), (3, {"head_dim": 4})])
def test_odd_heads_and_those_that_do_not_divide_the_width_are_refused(heads, options):
    with pytest.raises(
        UserError, match=r"^num_heads must be even and divide model.dim \(24\), got"
    ):
        GatedDeltaNet(DIM, DIM, heads, **options)


def test_the_default_widths_take_as_many_weights_as_multi_head_attention():
    matrices = sum(part.numel() for part in GatedDeltaNet(96, 96, 4).parameters())
    assert 4 * 96**2 < matrices < 4.3 * 96**2
