"""The loss of a model that copies, a block at a time, against the mixture written out."""

import pytest
import torch

from seqattn.data.batch import Batch
from seqattn.models.head import DecoderOutput, PointerHead, SourceTokens
from seqattn.ops.cross_entropy import LossTerms, cross_entropy
from seqattn.ops.vocabulary_loss import blockwise_cross_entropy
from seqattn.training.tasks.seq2seq import Optimization, Seq2SeqTask
from tests.builders import padded
from tests.models.families import copying, make
from tests.tolerance import close

B, T, D, V, S = 2, 5, 6, 11, 7
SOURCES = padded([[4, 10, 7, 4, 9, 4, 3], [5, 6, 8, 1, 3]])
TARGETS = padded([[4, 10, 7, 3], [5, 5, 6, 8, 3]])
REAL = TARGETS != 0


SMOOTH = LossTerms(label_smoothing=0.1)


def parts(dtype=torch.float64, spread=1.0):
    """Features, output layer, scores of the source, evidence and a head for its gate."""
    features = torch.randn(B, T, D, dtype=dtype, requires_grad=True)
    output = torch.nn.Linear(D, V, bias=False, dtype=dtype)
    scores = (torch.randn(B, T, S, dtype=dtype) * spread).requires_grad_()
    evidence = torch.randn(B, T, 4, dtype=dtype, requires_grad=True)
    return features, output, scores, evidence, PointerHead(D, V, None, 4).to(dtype)


def mixture_of(scores, evidence, part):
    weights = scores.masked_fill((SOURCES == 0)[:, None], -torch.inf).softmax(-1)
    output = DecoderOutput(evidence, weights, evidence)
    return part.mixture(output, SourceTokens.of(SOURCES))


def test_copying_counts_where_the_vocabulary_gives_nothing():
    """The gold token's logit is so low that the vocabulary's probability of it is 0 in float32."""
    features, output, scores, evidence, part = parts(torch.float32)
    with torch.no_grad():
        output.weight[TARGETS[0, 0]] = -300 * features[0, 0] / features[0, 0].norm()
    mixture = mixture_of(scores, evidence, part)
    target = torch.zeros_like(TARGETS)
    target[0, 0] = TARGETS[0, 0]
    ours = blockwise_cross_entropy(features, output.weight, target, LossTerms(), mixture)
    weights = scores.softmax(-1)[0, 0]
    copied = weights[SOURCES[0] == TARGETS[0, 0]].sum()
    p = part.gate(evidence[0, 0]).sigmoid()
    expected = -((1 - p) * copied).log().sum()
    torch.testing.assert_close(ours.smoothed, expected, rtol=1e-4, atol=1e-4)
    ours.smoothed.backward()
    for given in (features, scores, evidence, output.weight):
        assert given.grad.isfinite().all()


def test_weights_and_gates_far_apart_give_finite_gradients():
    features, output, scores, evidence, part = parts(torch.float32, spread=90.0)
    torch.nn.init.constant_(part.gate.bias, -150.0)
    mixture = mixture_of(scores, evidence, part)
    ours = blockwise_cross_entropy(100 * features, output.weight, TARGETS, SMOOTH, mixture)
    assert ours.smoothed.isfinite()
    ours.smoothed.backward()
    for given in (features, scores, evidence, *output.parameters(), *part.gate.parameters()):
        assert given.grad.isfinite().all()


def test_padding_moves_no_gradient_and_padding_alone_has_no_loss():
    features, output, scores, evidence, part = parts()
    mixture = mixture_of(scores, evidence, part)
    blockwise_cross_entropy(features, output.weight, TARGETS, SMOOTH, mixture).smoothed.backward()
    for given in (features, scores, evidence):
        assert (given.grad[REAL].abs().amax(-1) > 0).all()
        assert torch.equal(given.grad[~REAL], torch.zeros_like(given.grad[~REAL]))
    empty = blockwise_cross_entropy(
        features, output.weight, torch.zeros_like(TARGETS), SMOOTH, mixture
    )
    assert [part.item() for part in empty] == [0] * 5


@pytest.mark.usefixtures("blocks")
def test_under_autocast_to_bfloat16_it_stays_close_and_sums_in_float32():
    features, output, scores, evidence, part = parts(torch.float32)
    exact = blockwise_cross_entropy(
        features, output.weight, TARGETS, SMOOTH, mixture_of(scores, evidence, part)
    ).smoothed
    with torch.autocast("cpu", torch.bfloat16):
        rough = blockwise_cross_entropy(
            features, output.weight, TARGETS, SMOOTH, mixture_of(scores, evidence, part)
        ).smoothed
    assert rough.dtype == torch.float32
    torch.testing.assert_close(rough, exact, rtol=0.01, atol=0.0)
    for given in (features, output.weight, scores):
        (mine,) = torch.autograd.grad(rough, given, retain_graph=True)
        (theirs,) = torch.autograd.grad(exact, given, retain_graph=True)
        torch.testing.assert_close(mine, theirs, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("parameter", copying())
def test_the_tasks_loss_is_that_of_the_models_own_log_probabilities(parameter):
    model = make(parameter).double()
    task = Seq2SeqTask(model, Optimization(None, None, terms=LossTerms(label_smoothing=0.2)))
    given = torch.cat((torch.tensor([[2], [2]]), TARGETS[:, :-1]), dim=1)
    batch = Batch(SOURCES, given, TARGETS, torch.arange(B), 12, 9)
    ours = task.loss(batch)
    plain = cross_entropy(model(SOURCES, batch.target_input), batch.target_output, 0.2)
    torch.testing.assert_close(ours[:2], plain[:2])
    assert (ours.correct, ours.tokens) == (plain.correct, plain.tokens)
    got = torch.autograd.grad(ours.smoothed, list(model.parameters()))
    want = torch.autograd.grad(plain.smoothed, list(model.parameters()))
    for mine, theirs in zip(got, want, strict=True):
        close(mine, theirs)
