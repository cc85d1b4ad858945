"""Copying source tokens, against the mixture written out in probabilities."""

import pytest
import torch

from seqattn.analysis import capture
from seqattn.analysis.intervene import intervene, without_heads, without_keys
from seqattn.errors import UserError
from seqattn.models.head import DecoderOutput, PointerHead, SourceTokens
from seqattn.tokens import EOS, PAD
from tests.builders import (
    VOCABULARY,
    load_choice,
    make_transformer,
    padded,
    targets,
)
from tests.models.families import copying, make
from tests.models.recurrents import make_recurrent
from tests.tolerance import close

ROWS = [[4, 5, 6, 5, 8, 5, 3], [9, 4, 3], [1, 6, 7, 6, 3]]
SOURCES = padded(ROWS)
B, T, S, V = 3, 4, 7, VOCABULARY
TEXT = (SOURCES > 3)[:, None]


@pytest.fixture(params=copying())
def model(request):
    return make(request.param)


def written_out(logits, weights, gate, sources):
    """P (B, T, V), a source token at a time (See et al. 2017, eq. 9)."""
    p = gate.sigmoid()
    text = sources > 3
    idle = (weights * ~text[:, None]).sum(-1) + (weights.sum(-1) == 0)
    rows = []
    for b, source in enumerate(sources.tolist()):
        share = (p[b] + (1 - p[b]) * idle[b])[:, None] * logits[b].softmax(-1)
        for i, token in enumerate(source):
            if token > 3:
                one = torch.zeros(logits.shape[-1], dtype=logits.dtype)
                one[token] = 1
                share = share + ((1 - p[b]) * weights[b, :, i])[:, None] * one
        rows.append(share)
    return torch.stack(rows)


def inputs(dtype=torch.float64, scale=2.0):
    """Logits, scores of the source and gates of a batch; the second has nothing to look at."""
    logits = (torch.randn(B, T, V, dtype=dtype) * scale).requires_grad_()
    scores = (torch.randn(B, T, S, dtype=dtype) * scale).requires_grad_()
    evidence = torch.randn(B, T, 6, dtype=dtype, requires_grad=True)
    return logits, scores, evidence


def mixed(head, logits, weights, evidence):
    """Log-probabilities where the vocabulary's logits are given."""
    output = DecoderOutput(evidence, weights, evidence)
    return head.mixture(output, SourceTokens.of(SOURCES)).log_probabilities(logits)


def weights_of(scores, blind=False):
    weights = scores.masked_fill((SOURCES == PAD)[:, None], -torch.inf).softmax(-1)
    return weights * torch.tensor([1.0, 0.0, 1.0])[:, None, None] if blind else weights


@pytest.mark.parametrize("blind", [False, True])
def test_the_mixture_is_equation_9_in_value_and_gradient(blind):
    copying = PointerHead(5, V, None, 6).double()
    logits, scores, evidence = inputs()
    weights = weights_of(scores, blind)
    got = mixed(copying, logits, weights, evidence)
    expected = written_out(logits, weights, copying.gate(evidence)[..., 0], SOURCES).log()
    torch.testing.assert_close(got, expected, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(got.exp().sum(-1), torch.ones(B, T, dtype=torch.float64))
    upstream = torch.randn_like(got)
    parts = (logits, scores, evidence, *copying.gate.parameters())
    ours = torch.autograd.grad((got * upstream).sum(), parts, retain_graph=True)
    theirs = torch.autograd.grad((expected * upstream).sum(), parts)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-11, rtol=1e-11)


def test_nothing_is_copied_from_padding_the_unknown_word_or_the_end():
    copying = PointerHead(5, V, None, 6)
    logits, _, evidence = inputs(torch.float32)
    weights = torch.zeros(B, T, S)
    weights[:, :, 0] = 1.0  # the third source begins with the unknown word
    weights[1, :, :3] = torch.tensor([0.25, 0.0, 0.75])
    got = mixed(copying, logits, weights, evidence).exp()
    p = copying.gate(evidence)[..., 0].sigmoid()[..., None]
    vocabulary = logits.softmax(-1)
    torch.testing.assert_close(got[0, :, EOS], (p * vocabulary)[0, :, EOS])
    torch.testing.assert_close(got[1, :, EOS], ((p + (1 - p) * 0.75) * vocabulary)[1, :, EOS])
    torch.testing.assert_close(got[2], vocabulary[2])
    assert torch.equal(SourceTokens.of(SOURCES).text, SOURCES > 3)


@pytest.mark.parametrize("side", [-200.0, 200.0])
def test_a_gate_or_a_weight_at_its_end_gives_finite_values_and_gradients(side):
    copying = PointerHead(5, V, None, 6)
    torch.nn.init.zeros_(copying.gate.weight)
    torch.nn.init.constant_(copying.gate.bias, side)
    logits, scores, evidence = inputs(torch.float32, scale=60.0)  # most weights are exactly 0
    weights = weights_of(scores)
    assert (weights[TEXT.expand_as(weights)] == 0).any()
    got = mixed(copying, logits, weights, evidence)
    assert got.isfinite().all()
    got.sum().backward()
    for part in (logits, scores, evidence, *copying.gate.parameters()):
        assert part.grad.isfinite().all()
    if side > 0:
        expected = logits.log_softmax(-1)
        likelier = expected > side / -2  # below e^-200 what is copied weighs more
        torch.testing.assert_close(got[likelier], expected[likelier])


def weights_written_out(model, sources, target):
    """The mean over heads of the last cross-attention, as captured."""
    with torch.no_grad(), capture(model) as maps:
        model(sources, target)
    name = [name for name in maps if name.endswith("cross_attention")][-1]
    (weights,) = maps[name]
    return weights


def test_a_models_probabilities_are_the_mixture_of_its_own_parts(model):
    target = targets(B, T)
    with torch.no_grad():
        got = model(SOURCES, target)
        state = model.start(model.encode(SOURCES), cached=False)
        seen = model.features(target, state, need_weights=True)
        gate = model.head.gate(seen.evidence)[..., 0]
        expected = written_out(model.head.linear(seen.features), seen.weights, gate, SOURCES).log()
        state = model.start(model.encode(SOURCES), cached=False)
        features = model.features(target, state).features
    close(got, expected)
    close(seen.features, features)
    close(got.exp().sum(-1), torch.ones(B, T))


def test_the_weights_are_the_captured_ones_and_capture_changes_no_bit(model):
    target = targets(B, T)
    captured = weights_written_out(model, SOURCES, target)
    with torch.no_grad():
        plain = model(SOURCES, target)
        state = model.start(model.encode(SOURCES))
        seen = model.features(target, state, need_weights=True)
        with capture(model):
            observed = model(SOURCES, target)
    assert torch.equal(plain, observed)
    if "MixtureOfAttention" not in str(model):  # whose gates weight the mean, and are not captured
        close(seen.weights, captured.mean(dim=1))


@torch.no_grad()
@pytest.mark.parametrize("edit", [without_heads(0), without_keys(0, 1)])
def test_what_an_edit_takes_from_the_weights_goes_to_the_vocabulary(model, edit):
    with intervene(model, weights={"*cross_attention": edit}):
        found = model(SOURCES, targets(B, T))
    torch.testing.assert_close(found.exp().sum(dim=-1), torch.ones(B, T))


def test_autocast_to_bfloat16_stays_close_to_float32(model):
    target = targets(B, T)
    exact = model(SOURCES, target)
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(SOURCES, target)
    assert rough.dtype == torch.float32
    torch.testing.assert_close(rough, exact, atol=0.2, rtol=0.2)


def test_every_parameter_is_trained(model):
    model(SOURCES, targets(B, T))[..., 4:].square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.isfinite().all(), name
        if not name.endswith("key.bias"):  # the softmax does not see what all keys share
            assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize(
    ("make_it", "text"),
    [
        (
            lambda: make_transformer(copy=True, joint=False, share_embeddings="target"),
            "model.copy=true needs one vocabulary for both sides; set tokenizer.joint=true, or "
            "model.copy=false",
        ),
        (
            lambda: make_recurrent(copy=True, joint=False, share_embeddings="none"),
            "model.copy=true needs one vocabulary for both sides; set tokenizer.joint=true, or "
            "model.copy=false",
        ),
        (
            lambda: make_transformer(copy=True, cross=load_choice("attention", "xca")),
            "model.copy=true needs cross-attention weights that sum to 1 in the last decoder "
            "layer; set attention@cross_attention=mha, and model.decoder_layers to 1 or more",
        ),
        *(
            (
                lambda name=name: make_recurrent(name, copy=True),
                "model.copy=true needs attention weights over the source that sum to 1; set "
                "attention=bahdanau or attention=luong_general",
            )
            for name in ("none", "luong_local_p")
        ),
    ],
)
def test_a_model_that_cannot_copy_is_refused_in_words(make_it, text):
    with pytest.raises(UserError) as caught:
        make_it()
    assert str(caught.value) == text
