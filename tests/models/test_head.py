"""What every head obeys, linear or pointer."""

import pytest
import torch

from seqattn import ops
from seqattn.models.head import DecoderOutput, Head, PointerHead
from seqattn.ops import layers
from seqattn.ops.cpu import onednn
from seqattn.ops.cross_entropy import LossTerms
from seqattn.ops.layers import packed
from tests.builders import padded, randomised

B, T, S, D, V, E = 2, 5, 7, 6, 11, 4
SOURCES = padded([[4, 10, 7, 4, 9, 4, 3], [5, 6, 8, 1, 3]])
TARGETS = padded([[4, 10, 7, 3], [5, 5, 6, 8, 3]])
HEADS = {
    "linear": lambda: Head(D, V),
    "tied": lambda: Head(D, V, torch.nn.Parameter(torch.randn(V, D))),
    "bias": lambda: Head(D, V, torch.nn.Parameter(torch.randn(V, D)), bias=True),
    "pointer": lambda: PointerHead(D, V, None, E),
    "pointer with a bias": lambda: PointerHead(D, V, None, E, bias=True),
    "capped": lambda: Head(D, V, torch.nn.Parameter(torch.randn(V, D)), bias=True, softcap=1.5),
    "pointer, capped": lambda: PointerHead(D, V, None, E, softcap=1.5),
}


@pytest.fixture(params=HEADS)
def head(request):
    torch.manual_seed(0)
    return randomised(HEADS[request.param]()).double()


def output_of(seed=0):
    """A decoder's output whose parts take gradients."""
    torch.manual_seed(seed)
    scores = torch.randn(B, T, S, dtype=torch.float64).masked_fill(
        SOURCES[:, None] == 0, -torch.inf
    )
    parts = (torch.randn(B, T, D), scores.softmax(-1), torch.randn(B, T, E))
    return DecoderOutput(*(part.double().requires_grad_() for part in parts))


def test_probabilities_sum_to_one_and_are_those_of_the_logits(head):
    output, source = output_of(), head.source_tokens(SOURCES)
    got = head.log_probabilities(output, source)
    ones = torch.ones(B, T, dtype=torch.float64)
    torch.testing.assert_close(got.exp().sum(-1), ones, atol=1e-12, rtol=0)
    expected = head.logits(output, source).log_softmax(-1)
    torch.testing.assert_close(got, expected, atol=1e-12, rtol=1e-12)
    with torch.no_grad():
        assert torch.equal(head.log_probabilities(output, source), got)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_the_loss_is_that_of_the_log_probabilities_in_value_and_gradient(head, smoothing):
    output, source = output_of(), head.source_tokens(SOURCES)
    ours = head.loss(output, TARGETS, source, LossTerms(label_smoothing=smoothing))
    log_probabilities, real = head.log_probabilities(output, source), TARGETS != 0
    nll = -log_probabilities.gather(2, TARGETS[..., None])[..., 0][real].sum()
    expected = (1 - smoothing) * nll - smoothing * log_probabilities.mean(-1)[real].sum()
    torch.testing.assert_close(ours.smoothed, expected, atol=1e-11, rtol=1e-11)
    torch.testing.assert_close(ours.nll, nll.detach(), atol=1e-11, rtol=1e-11)
    correct = ((log_probabilities.argmax(-1) == TARGETS) & real).sum()
    assert (ours.correct, ours.tokens) == (correct, 9)
    assert not ours.nll.requires_grad
    parts = [*(output if head.needs_weights else output[:1]), *head.parameters()]
    got, want = (torch.autograd.grad(loss, parts, retain_graph=True)
                 for loss in (3.5 * ours.smoothed, 3.5 * expected))  # fmt: skip
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-11, rtol=1e-11)


def test_beams_share_their_source(head):
    output = output_of()
    single = head.log_probabilities(output, head.source_tokens(SOURCES))
    rows = torch.tensor([0, 0, 1, 1])
    twice = DecoderOutput(*(part[rows] for part in output))
    got = head.log_probabilities(twice, head.source_tokens(SOURCES))
    torch.testing.assert_close(got, single[rows])


def test_a_bias_of_minus_a_thousand_forbids_a_token():
    head = randomised(Head(D, V, bias=True))
    with torch.no_grad():
        head.linear.bias[4] = -1e3
    output = DecoderOutput(torch.randn(B, T, D))
    got = head.log_probabilities(output, None).exp()
    others = head.logits(output, None)[..., [n for n in range(V) if n != 4]].softmax(-1)
    assert not got[..., 4].any()
    torch.testing.assert_close(got[..., [n for n in range(V) if n != 4]], others)
    smoothed = head.loss(
        output, TARGETS.where(TARGETS != 4, 5), None, LossTerms(label_smoothing=0.1)
    ).smoothed
    assert smoothed.isfinite()


@pytest.mark.skipif(not onednn.can_pack(), reason="this PyTorch has no such operators")
def test_packing_changes_no_probability(head, monkeypatch):
    monkeypatch.setattr(ops, "LEAST", 1)
    for name in ("_LARGE", "_LARGE_FOR_MKL"):
        monkeypatch.setattr(layers, name, 1)
    head = head.float()
    output = DecoderOutput(*(part.detach().float() for part in output_of()))
    with torch.inference_mode():
        expected = head.log_probabilities(output, head.source_tokens(SOURCES))
        with packed(head):
            assert head.linear.packed is not None
            got = head.log_probabilities(output, head.source_tokens(SOURCES))
    torch.testing.assert_close(got, expected)
