"""The loss over a vocabulary against PyTorch's own."""

import pytest
import torch
import torch.nn.functional as F

from seqattn.ops import vocabulary_loss as loss_module
from seqattn.ops.cross_entropy import LossTerms, cross_entropy, symmetric_divergence
from seqattn.ops.vocabulary_loss import blockwise_cross_entropy, nonzero_indices
from tests.builders import padded
from tests.operations import operations

B, T, D, V = 2, 5, 6, 11
TARGETS = padded([[4, 10, 7, 3], [5, 5, 6, 8, 3]])
REAL = TARGETS != 0
SMOOTH = LossTerms(label_smoothing=0.1)


def layer(dtype=torch.float64):
    return torch.nn.Linear(D, V, bias=False, dtype=dtype)


def expected(logits, smoothing):
    """(smoothed, nll, correct) by PyTorch."""
    flat, gold = logits.reshape(-1, V), TARGETS.reshape(-1)
    smoothed = F.cross_entropy(
        flat, gold, ignore_index=0, reduction="sum", label_smoothing=smoothing
    )
    nll = F.cross_entropy(flat, gold, ignore_index=0, reduction="sum")
    correct = ((logits.argmax(-1) == TARGETS) & REAL).sum()
    return smoothed, nll, correct


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_cross_entropy_is_pytorchs_in_value_and_gradient(smoothing):
    logits = torch.randn(B, T, V, dtype=torch.float64, requires_grad=True)
    ours = cross_entropy(logits, TARGETS, smoothing)
    smoothed, nll, correct = expected(logits, smoothing)
    torch.testing.assert_close(ours.smoothed, smoothed, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ours.nll, nll, rtol=1e-12, atol=1e-12)
    assert (ours.correct, ours.tokens) == (correct, 9)
    for mine, theirs in ((ours.smoothed, smoothed), (ours.nll, nll)):
        (got,) = torch.autograd.grad(mine, logits, retain_graph=True)
        (want,) = torch.autograd.grad(theirs, logits, retain_graph=True)
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


def test_log_probabilities_give_the_loss_of_their_logits():
    logits = torch.randn(B, T, V, dtype=torch.float64)
    ours = cross_entropy(logits.log_softmax(-1), TARGETS, 0.1)
    torch.testing.assert_close(ours.smoothed, expected(logits, 0.1)[0])


@pytest.mark.usefixtures("either_cpu")
@pytest.mark.parametrize("r_drop", [0.0, 3.0])
def test_in_float32_value_and_gradients_are_those_of_float64(blocks, r_drop):
    found = []
    output, features = layer(), torch.randn(B, T, D, dtype=torch.float64)
    features, targets = features[:1].repeat(2, 1, 1) + features, TARGETS[:1].repeat(2, 1)
    for kind in (torch.float64, torch.float32):
        inputs = [part.detach().to(kind).requires_grad_() for part in (features, output.weight)]
        loss = blockwise_cross_entropy(
            *inputs, targets, LossTerms(label_smoothing=0.1, r_drop=r_drop)
        )
        found.append((loss.smoothed, loss.nll, *torch.autograd.grad(loss.smoothed, inputs)))
    for exact, single in zip(*found, strict=True):
        torch.testing.assert_close(single.double(), exact, rtol=1e-5, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("tied", [range(V), [2, 3, 5]])
def test_of_logits_that_tie_the_first_alone_is_said(blocks, tied):
    """A model that knows nothing, whose logits are all alike, was always right."""
    features, output = torch.ones(B, T, D, dtype=torch.float64), layer()
    output.weight.zero_()
    output.weight[list(tied)] = 1.0
    ours = blockwise_cross_entropy(features, output.weight, TARGETS, SMOOTH)
    assert ours.correct == ((min(tied) == TARGETS) & REAL).sum()
    assert ours.correct == cross_entropy(output(features), TARGETS, 0.1).correct


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_blockwise_cross_entropy_is_pytorchs_in_value_and_gradient(blocks, smoothing):
    output = layer()
    features = torch.randn(B, T, D, dtype=torch.float64, requires_grad=True)
    inputs = (features, *output.parameters())
    ours = blockwise_cross_entropy(
        features, output.weight, TARGETS, LossTerms(label_smoothing=smoothing)
    )
    smoothed, nll, correct = expected(output(features), smoothing)
    torch.testing.assert_close(ours.smoothed, smoothed, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ours.nll, nll.detach(), rtol=1e-12, atol=1e-12)
    assert (ours.correct, ours.tokens) == (correct, 9)
    assert not ours.nll.requires_grad
    got = torch.autograd.grad(3.5 * ours.smoothed, inputs)  # the factor must reach the gradient
    want = torch.autograd.grad(3.5 * smoothed, inputs)
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("kind", [torch.float64, torch.float32])
@pytest.mark.parametrize(("smoothing", "r_drop"), [(0.0, 0.0), (0.7, 0.0), (0.1, 3.0)])
def test_capped_logits_give_their_loss_and_gradients(blocks, kind, smoothing, r_drop):
    output, tolerance = layer(kind), 1e-11 if kind == torch.float64 else 1e-5
    targets = TARGETS[:1].repeat(2, 1)
    features = (3 * torch.randn(B, T, D, dtype=kind)).requires_grad_()
    inputs = (features, *output.parameters())
    terms = LossTerms(label_smoothing=smoothing, r_drop=r_drop)
    ours = blockwise_cross_entropy(features, output.weight, targets, terms, softcap=1.5)
    capped = 1.5 * torch.tanh(output(features) / 1.5)
    whole = cross_entropy(capped, targets, smoothing)
    apart = symmetric_divergence(capped.log_softmax(-1)[:, :4].flatten(0, 1))
    expected = whole.smoothed + r_drop / 2 * apart
    torch.testing.assert_close(ours.smoothed, expected, rtol=tolerance, atol=tolerance)
    assert ours.correct == whole.correct
    got, want = (torch.autograd.grad(loss, inputs) for loss in (ours.smoothed, expected))
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=10 * tolerance, atol=tolerance)
    with torch.no_grad():
        quiet = blockwise_cross_entropy(features, output.weight, targets, terms, softcap=1.5)
    torch.testing.assert_close(quiet.smoothed, expected, rtol=tolerance, atol=tolerance)


def test_capped_logits_of_simcut_are_scored_in_the_first_pass_alone(blocks):
    output, targets = layer(torch.float64), TARGETS[:1].repeat(2, 1)
    features = (3 * torch.randn(B, T, D, dtype=torch.float64)).requires_grad_()
    inputs = (features, *output.parameters())
    terms = LossTerms(label_smoothing=0.2, simcut=3.0)
    ours = blockwise_cross_entropy(features, output.weight, targets, terms, softcap=1.5)
    whole, cut = (1.5 * torch.tanh(output(features) / 1.5)).chunk(2)
    first, second = (x.log_softmax(-1)[:, :4].flatten(0, 1) for x in (whole, cut))
    divergence = F.kl_div(second, first, log_target=True, reduction="sum")
    expected = cross_entropy(whole, targets[:1], 0.2).smoothed + 3.0 * divergence
    torch.testing.assert_close(ours.smoothed, expected, rtol=1e-11, atol=1e-11)
    got, want = (torch.autograd.grad(loss, inputs) for loss in (ours.smoothed, expected))
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-11)


def test_blocks_are_as_many_as_the_vocabulary_asks_for(monkeypatch):
    """1,000 tokens in blocks of 256 (never fewer) give what one block gives."""
    targets = torch.randint(1, V, (10, 100))
    features = torch.randn(10, 100, D, dtype=torch.float64)
    output = layer()
    whole = blockwise_cross_entropy(features, output.weight, targets, SMOOTH)
    rows = []
    block = loss_module._block
    monkeypatch.setattr(loss_module, "_BLOCK_NUMBERS", 1)
    monkeypatch.setattr(
        loss_module, "_block", lambda x, *rest: rows.append(len(x)) or block(x, *rest)
    )
    blocked = blockwise_cross_entropy(features, output.weight, targets, SMOOTH)
    assert rows == [256] * 3 + [232]
    torch.testing.assert_close(blocked, whole)


def test_without_gradients_the_value_is_the_same():
    output, features = layer(), torch.randn(B, T, D, dtype=torch.float64)
    with torch.no_grad():
        quiet = blockwise_cross_entropy(features, output.weight, TARGETS, SMOOTH)
    assert not quiet.smoothed.requires_grad
    torch.testing.assert_close(quiet.smoothed, expected(output(features), 0.1)[0].detach())


def test_a_weight_shared_with_the_features_gets_both_gradients():
    output = layer()
    with torch.no_grad():
        hidden = torch.randn(B, T, V, dtype=torch.float64)
    gradients = []
    for loss in (
        lambda x: blockwise_cross_entropy(x, output.weight, TARGETS, SMOOTH).smoothed,
        lambda x: expected(output(x), 0.1)[0],
    ):
        (gradient,) = torch.autograd.grad(loss(hidden @ output.weight), output.weight)
        gradients.append(gradient)
    torch.testing.assert_close(*gradients, rtol=1e-11, atol=1e-12)


def test_of_a_frozen_weight_no_gradient_is_computed(blocks):
    output, counts, gradients = layer(), [], []
    features = torch.randn(B, T, D, dtype=torch.float64, requires_grad=True)
    for frozen in (False, True):
        output.weight.requires_grad_(not frozen)
        with operations() as names:
            blockwise_cross_entropy(features, output.weight, TARGETS, SMOOTH).smoothed.backward()
        counts.append(names["mm"] + names["addmm_"] + names["addmm"])
        gradients.append(features.grad)
        features.grad = None
    assert torch.equal(*gradients)
    assert counts[1] == counts[0] * 2 / 3  # logits, gradient of the features, of the weight


def test_padding_moves_neither_the_loss_nor_a_gradient():
    output = layer()
    features = torch.randn(B, T, D, dtype=torch.float64, requires_grad=True)
    first = blockwise_cross_entropy(features, output.weight, TARGETS, SMOOTH).smoothed
    (gradient,) = torch.autograd.grad(first, features)
    assert torch.equal(gradient[~REAL], torch.zeros(1, D, dtype=torch.float64))
    changed = features.detach().clone()
    changed[~REAL] = 1e6
    assert torch.equal(
        blockwise_cross_entropy(changed, output.weight, TARGETS, SMOOTH).smoothed, first
    )


def test_a_batch_of_padding_alone_has_no_loss_and_no_gradient():
    output = layer()
    features = torch.randn(B, T, D, dtype=torch.float64, requires_grad=True)
    ours = blockwise_cross_entropy(features, output.weight, torch.zeros_like(TARGETS), SMOOTH)
    assert [part.item() for part in ours] == [0] * 5
    ours.smoothed.backward()
    for gradient in (features.grad, output.weight.grad):
        assert torch.equal(gradient, torch.zeros_like(gradient))


def test_logits_far_apart_give_no_infinity():
    output = layer(dtype=torch.float32)
    features = 1e4 * torch.randn(B, T, D)
    ours = blockwise_cross_entropy(features, output.weight, TARGETS, SMOOTH).smoothed
    exact = expected(output.double()(features.double()), 0.1)[0]
    torch.testing.assert_close(ours.double(), exact.detach(), rtol=1e-5, atol=0.0)


def test_under_autocast_to_bfloat16_it_stays_close_and_sums_in_float32(blocks):
    output = layer(dtype=torch.float32)
    features = torch.randn(B, T, D, requires_grad=True)
    inputs = (features, *output.parameters())
    smoothed, nll, _ = expected(output(features), 0.1)
    with torch.autocast("cpu", torch.bfloat16):
        ours = blockwise_cross_entropy(features, output.weight, TARGETS, SMOOTH)
    assert ours.smoothed.dtype == torch.float32
    torch.testing.assert_close(ours.smoothed, smoothed, rtol=0.01, atol=0.0)
    torch.testing.assert_close(ours.nll, nll.detach(), rtol=0.01, atol=0.0)
    got = torch.autograd.grad(ours.smoothed, inputs)
    want = torch.autograd.grad(smoothed, inputs)
    for mine, theirs, value in zip(got, want, inputs):
        assert mine.dtype == value.dtype
        torch.testing.assert_close(mine, theirs, rtol=0.05, atol=0.05)
    assert not all(torch.equal(mine, theirs) for mine, theirs in zip(got, want))


def test_under_autocast_to_float16_no_gradient_overflows():
    features = torch.zeros(1, 3, 4, requires_grad=True)  # so that a row's total is the vocabulary
    weight = torch.randn(70_000, 4, requires_grad=True)
    targets = torch.tensor([[5, 6, 69_999]])
    with torch.autocast("cpu", torch.float16):
        loss = blockwise_cross_entropy(features, weight, targets, LossTerms()).smoothed
    loss.backward()
    wanted = weight.detach().mean(dim=0) - weight.detach()[targets[0]]
    torch.testing.assert_close(features.grad[0], wanted, rtol=1e-2, atol=1e-2)
    assert weight.grad.isfinite().all()


def test_places_are_those_that_a_look_would_find():
    real = torch.rand(7, 11, generator=torch.Generator().manual_seed(0)) < 0.6
    for found, wanted in zip(nonzero_indices(real, int(real.sum())), real.nonzero(as_tuple=True)):
        assert torch.equal(found, wanted)


def test_second_derivatives_are_refused_and_not_wrong():
    features = torch.randn(B, T, D, dtype=torch.float64, requires_grad=True)
    loss = blockwise_cross_entropy(features, layer().weight, TARGETS, SMOOTH).smoothed
    with pytest.raises(RuntimeError, match="this loss does not support second derivatives"):
        torch.autograd.grad(loss, features, create_graph=True)


def test_in_half_precision_the_products_of_batches_have_few_shapes(monkeypatch):
    rows, product = set(), torch.mm
    monkeypatch.setattr(
        torch, "mm", lambda x, *rest, **more: rows.add(len(x)) or product(x, *rest, **more)
    )
    output = layer().float()
    for length in range(1, 100):
        features = torch.randn(1, length, D, requires_grad=True)
        with torch.autocast("cpu", torch.bfloat16):
            loss = blockwise_cross_entropy(
                features, output.weight, torch.full((1, length), 3), SMOOTH
            ).smoothed
        loss.backward()
        assert features.grad.isfinite().all()
    assert rows == {32, 64, 96, 128}
