"""Recurrent models against one written out step by step, and against themselves another way."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.func import functional_call

from seqattn.analysis import capture
from seqattn.errors import UserError
from seqattn.models.recurrent import RecurrentConfig
from seqattn.models.recurrent_decoder import plain_decode
from seqattn.tokens import BOS, PAD
from tests.builders import VOCABULARY, padded, targets
from tests.models.recurrents import ALIGNMENTS, MODELS, label, make_recurrent
from tests.tolerance import close

ROWS = [[4, 5, 6, 7, 8, 9, 3], [9, 4, 3], [6, 6, 7, 10, 3]]
SOURCES = padded(ROWS)
TARGETS = [[2, 5, 6], [2, 4, 4, 9, 10], [2, 7, 8, 8]]
B, T, K = 3, 6, 3


@pytest.fixture(params=MODELS, ids=label)
def model(request):
    name, options = request.param
    return make_recurrent(name, **options)


def skip_exception(model, law):
    reason = model.decoder.cross_attention.exceptions.get(law)
    if reason is not None:
        pytest.skip(reason)


def step_of(layer, x, hidden):
    """PyTorch's own cell with the layer's weights."""
    lstm = isinstance(layer.rnn, nn.LSTM)
    cell = (nn.LSTMCell if lstm else nn.GRUCell)(layer.rnn.input_size, layer.rnn.hidden_size)
    cell.load_state_dict({k.removesuffix("_l0"): v for k, v in layer.rnn.state_dict().items()})
    return cell(x, hidden if lstm else hidden[0]) if lstm else (cell(x, hidden[0]),)


def written_out(model, source, target):
    """Logits (T, V) of one pair by the published recurrences, a step at a time."""
    memory = model.encode(torch.tensor([source]))
    decoder, table = model.decoder, model.target_embedding.table.weight
    annotations = decoder.cross_attention.project(memory.outputs, memory.real)
    hidden = list(model.bridge(memory.last))
    feed, logits = torch.zeros(1, 10), []
    past = [decoder.cross_attention.first_past(annotations, beams=1)]
    for t, token in enumerate(target):
        word = table[token][None] * 10**0.5
        where = torch.tensor([[t]])

        def ask(state, where=where):
            context, _, after = decoder.cross_attention(
                state[:, None], annotations, where, past[-1]
            )
            past.append(after)
            return context[:, 0]

        if decoder.attends_first:
            context = ask(hidden[-1][0])
            x = torch.cat((word, context), dim=1)
        else:
            x = torch.cat((word, feed), dim=1) if model.config.input_feeding else word
        for number, layer in enumerate(decoder.layers):
            hidden[number] = step_of(layer, x, hidden[number])
            x = hidden[number][0]
        merge = decoder.readout.merge
        if decoder.attends_first:
            pairs = merge(torch.cat((x, word, context), dim=1)).view(1, 10, 2)
            features = torch.maximum(pairs[..., 0], pairs[..., 1])
        else:
            features = feed = torch.tanh(merge(torch.cat((ask(x), x), dim=1)))
        logits.append(model.head.linear(features))
    return torch.cat(logits)


@torch.inference_mode()
def test_logits_equal_the_recurrence_written_out(model):
    skip_exception(model, "context")
    got = model(SOURCES, padded(TARGETS))
    for number, (source, target) in enumerate(zip(ROWS, TARGETS)):
        close(got[number, : len(target)], written_out(model, source, target), 5e-5)


PLAIN = {
    "bahdanau": ("bahdanau", {}),
    "bahdanau, gru, deep": ("bahdanau", {"cell": "gru", "decoder_layers": 3}),
    "luong": ("luong_general", {}),
    "luong, fed": ("luong_general", {"input_feeding": True, "decoder_layers": 2}),
    "luong, before": ("luong_concat", {"order": "before"}),
    "local": ("luong_local_p", {"input_feeding": True, "cell": "gru"}),
    "no attention": ("none", {}),
}


COPY = [(name, copy) for name in PLAIN for copy in (False, True)]
COPY = [case for case in COPY if case not in (("local", True), ("no attention", True))]


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize(("name", "copy"), COPY)
def test_the_quick_decoder_equals_its_plain_twin_in_value_and_gradient(name, cached, copy):
    alignment, options = PLAIN[name]
    model = make_recurrent(alignment, copy=copy, **options).double()
    target, parameters = padded(TARGETS), list(model.parameters())
    upstream = torch.randn(3, 5, VOCABULARY, dtype=torch.float64) * (target != PAD)[..., None]
    found = []
    for decode in (model.decoder, partial(plain_decode, model.decoder)):
        state = model.start(model.encode(SOURCES), cached=cached)
        rows = state.advance(target)
        x = model.target_embedding(rows.ids)
        more = {"need_weights": True} if decode is model.decoder else {}
        output = decode(x, rows, state, **more)
        logits = model.head.logits(output, state.source_tokens)
        gradients = torch.autograd.grad((logits * upstream).sum(), parameters)
        shown = [part * (target != PAD)[..., None] for part in (*output, logits)]
        past = [part for layer in state.layers for part in layer] if cached else []
        found.append([*shown, *gradients, *past])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-10, rtol=1e-10)


@torch.inference_mode()
def test_one_copy_of_the_source_serves_every_beam(model):
    state = model.start(model.encode(SOURCES), beams=5)
    model.decode(torch.full((5 * B, 1), BOS), state)
    assert state.source.keys.shape[0] == B
    assert state.source.values.shape[0] == B


def test_capturing_shows_a_whole_target_and_changes_no_bit(model):
    target, attention = padded(TARGETS), "decoder.cross_attention"
    plain = model(SOURCES, target)
    with capture(model) as maps:
        observed = model(SOURCES, target)
    assert torch.equal(plain, observed)
    if not model.decoder.cross_attention.has_weights:
        with pytest.raises(UserError, match=r"^decoder.cross_attention has no attention weights"):
            maps[attention]
        return
    (weights,) = maps[attention]
    assert weights.shape == (3, 1, 5, 7)
    assert (weights[:, 0].transpose(1, 2)[SOURCES == PAD] == 0).all()
    with capture(model) as steps:
        state = model.start(model.encode(SOURCES))
        for token in target.split(1, dim=1):
            model.decode(token, state)
    together = torch.cat(steps[attention], dim=2)
    for row, words in enumerate(TARGETS):
        n = len(words)
        close(together[row, :, :n], weights[row, :, :n])


@pytest.mark.parametrize("name", ["bahdanau", "luong_general"])
def test_gradients_reach_observed_weights(name):
    model = make_recurrent(name)
    with capture(model, gradients=True) as maps:
        logits = model(SOURCES, targets(B, T))
    calls = maps["decoder.cross_attention"]
    assert len(calls) == (T if name == "bahdanau" else 1)
    gradients = torch.autograd.grad(logits.square().sum(), calls)
    assert all((gradient.abs() > 0).any() for gradient in gradients)


def test_beams_stand_as_query_positions_in_captured_weights():
    model = make_recurrent("bahdanau")
    prefix = targets(B, 3)
    with capture(model) as maps:
        model.decode(prefix, model.start(model.encode(SOURCES)))
        state = model.start(model.encode(SOURCES), beams=K)
        model.decode(prefix.repeat_interleave(K, dim=0), state)
    one, folded = maps["decoder.cross_attention"]
    assert folded.shape == (B, 1, K * 3, 7)
    close(folded, one.repeat(1, 1, K, 1))


@pytest.mark.parametrize("name", ["bahdanau", "luong_general"])
@pytest.mark.parametrize("feeding", [False, True])
@pytest.mark.parametrize("copy", [False, True])
def test_without_teacher_forcing_training_reads_what_greedy_search_would(name, feeding, copy):
    shape = {"input_feeding": feeding, "order": "after", "decoder_layers": 2}
    model = make_recurrent(name, copy=copy, **shape)
    target = targets(B, T)
    with torch.no_grad():
        if copy:
            model.head.gate.bias.fill_(-3.0)  # the likeliest word is a copied one
        logits = model(SOURCES, target, teacher_forcing=0.0)
        logits[..., PAD] = -torch.inf
        state, words = model.start(model.encode(SOURCES)), target[:, :1]
        for t in range(T):
            step = model.decode(words, state)
            step[..., PAD] = -torch.inf
            close(logits[:, t : t + 1], step)
            words = step.argmax(dim=-1)


def test_scheduled_sampling_reads_about_its_share_and_gradients_reach_every_parameter(model):
    skip_exception(model, "gradients")
    if not model.feeds_itself:
        pytest.skip("it cannot read its own predictions")
    reads = []
    table = model.target_embedding
    table.register_forward_hook(lambda module, args, out: reads.append(args[0].shape))
    full = model(SOURCES, targets(B, T), teacher_forcing=1.0)
    half = model(SOURCES, targets(B, T), teacher_forcing=0.5)
    assert reads[0] == (B, T)
    assert reads[1:] == [(B, T), *[(B, 1)] * (T - 1)]
    assert torch.allclose(full[:, 0], half[:, 0], atol=1e-5)  # the begin is always given
    half.square().sum().backward()
    assert all(p.grad.abs().max() > 0 for p in model.parameters())
    torch.manual_seed(1)
    again = model(SOURCES, targets(B, T), teacher_forcing=0.5)
    torch.manual_seed(1)
    assert torch.equal(again, model(SOURCES, targets(B, T), teacher_forcing=0.5))
    same = model(SOURCES, targets(B, T), teacher_forcing=1 - 1e-9)
    close(same, full)


@pytest.mark.parametrize("name", ["bahdanau", "luong_general"])
def test_variational_dropout_drops_the_same_at_every_step(name):
    model = make_recurrent(name, dropout=0.5, variational=True, decoder_layers=2).train()
    with torch.no_grad():
        features = model.features(
            torch.full((2, 5), BOS), model.start(model.encode(SOURCES[:2]), cached=False)
        ).features
    dropped = features == 0
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))
    assert 0 < dropped[:, 0].sum() < dropped[:, 0].numel()
    plain = make_recurrent(name, dropout=0.5, decoder_layers=2).train()
    with torch.no_grad():
        other = plain.features(
            torch.full((2, 5), BOS), plain.start(plain.encode(SOURCES[:2]), cached=False)
        ).features
    assert not torch.equal(other == 0, (other == 0)[:, :1].expand_as(other))


def test_variational_dropout_drops_the_same_of_words_that_the_model_chose():
    model = make_recurrent("luong_general", dropout=0.5, variational=True).train()
    state = model.start(model.encode(SOURCES), cached=False)
    given = torch.full((B, T), BOS)
    evidence = model.features(given, state, teacher_forcing=0.5, need_weights=True).evidence
    dropped = evidence[..., -model.config.dim :] == 0
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))
    assert 0 < dropped[:, 0].sum() < dropped[:, 0].numel()


def test_a_state_for_one_decode_serves_one():
    model = make_recurrent()
    state = model.start(model.encode(SOURCES), cached=False)
    model.decode(targets(B, T), state)
    with pytest.raises(AssertionError, match="cached=False supports only one decode"):
        model.decode(targets(B, 1), state)


def test_the_state_is_as_large_at_every_length():
    model = make_recurrent("luong_general", cell="lstm", input_feeding=True, decoder_layers=2)
    state = model.start(model.encode(SOURCES), beams=K)
    size = B * K * 4 * (2 * 2 * 14 + 10)
    for _ in range(3):
        model.decode(torch.full((B * K, 1), 5), state)
        assert state.nbytes == size


def test_autocast_to_bfloat16_stays_close_to_float32(model):
    exact = model(SOURCES, padded(TARGETS))
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(SOURCES, padded(TARGETS))
        rough.float().square().sum().backward()
    torch.testing.assert_close(rough.float(), exact, atol=0.15, rtol=0.15)
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"encoder_dim": 13},
            "encoder_dim must be even with model.bidirectional=true, got 13",
        ),
        (
            {"joint": False},
            "model.share_embeddings=all needs one vocabulary for both sides; set "
            "tokenizer.joint=true, or model.share_embeddings=target",
        ),
        (
            {"input_feeding": True},
            "model.input_feeding=true cannot be combined with model.order=before (Bahdanau's), "
            "which already feeds the context; set model.order=after, or "
            "model.input_feeding=false",
        ),
    ],
)
def test_a_shape_that_cannot_be_is_refused_in_words(options, text):
    with pytest.raises(UserError) as caught:
        make_recurrent(**options)
    assert str(caught.value) == text


def test_widths_left_open_are_the_models():
    model = RecurrentConfig(dim=8).build(9, 9, True, ALIGNMENTS["luong_dot"])
    assert model.encode(torch.tensor([[4, 3]])).outputs.shape == (1, 2, 8)
    assert model.decoder.layers[0].rnn.hidden_size == 8


@torch.inference_mode()
@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_the_encoder_equals_cells_over_each_sentence_alone(cell, bidirectional):
    model = make_recurrent(cell=cell, bidirectional=bidirectional, encoder_layers=2)
    ways = [model.encoder.ahead, *([model.encoder.back] if bidirectional else [])]
    memory = model.encode(padded(ROWS, left=True))
    for number, row in enumerate(ROWS):
        x = model.source_embedding.table.weight[row] * 10**0.5
        last = []
        for depth in range(2):
            sides = [one_way(way[depth], x.flip(0) if n else x) for n, way in enumerate(ways)]
            last += [side[-1] for side in sides]
            x = torch.cat([side.flip(0) if n else side for n, side in enumerate(sides)], dim=1)
        close(memory.outputs[number, -len(row) :], x)
        assert (memory.outputs[number, : 7 - len(row)] == 0).all()
        ends = torch.cat(last)  # (layers * D)
        close(memory.last[number], ends)
        hidden = torch.tanh(model.bridge.maps[0](ends))
        close(model.bridge(memory.last)[0][0][number], hidden)


def one_way(layer, x):
    """Outputs (S, D) of one direction."""
    lstm = isinstance(layer, nn.LSTM)
    cell = (nn.LSTMCell if lstm else nn.GRUCell)(layer.input_size, layer.hidden_size)
    cell.load_state_dict({k.removesuffix("_l0"): v for k, v in layer.state_dict().items()})
    hidden, out = None, []
    for step in x:
        hidden = cell(step[None], hidden)
        out.append(hidden[0] if lstm else hidden)
    return torch.cat(out)


class Half(nn.Module):
    """In dropout's place: halves everything, and notes the widths it saw."""

    p = 0.5

    def __init__(self):
        super().__init__()
        self.widths = []

    def forward(self, x):
        self.widths.append(x.shape[2])
        return x * 0.5


@pytest.mark.parametrize("variational", [True, False])
def test_dropout_falls_on_embeddings_between_layers_and_on_features_in_loop_and_fused(variational):
    model = make_recurrent(
        "luong_general", encoder_layers=2, decoder_layers=2, variational=variational
    ).train()
    found = []
    for loops in (False, True):
        model.decoder.loops, model.dropout.drop = loops, Half()
        with torch.no_grad():
            found.append(model(SOURCES, targets(B, T)))
        # source words, encoder outputs, target words, decoder outputs, features
        assert model.dropout.drop.widths == [10, 12, 10, 14, 10]
    close(*found)


@pytest.mark.parametrize("name", ["bahdanau", "luong_general"])
def test_second_derivatives_agree_with_finite_differences(name):
    model = make_recurrent(name, encoder_dim=14).double()
    name = "decoder.layers.0.rnn.weight_hh_l0"
    weight = model.get_parameter(name).detach().requires_grad_()
    direction = torch.randn_like(weight)

    def slope(shift):
        inputs = (SOURCES, padded(TARGETS))
        logits = functional_call(model, {name: weight + shift * direction}, inputs)
        [gradient] = torch.autograd.grad(logits.square().sum(), weight, create_graph=True)
        return (gradient * direction).sum()

    curvature = (torch.autograd.grad(slope(0.0), weight)[0] * direction).sum()
    difference = (slope(1e-4) - slope(-1e-4)).detach() / 2e-4
    torch.testing.assert_close(curvature, difference, rtol=1e-5, atol=1e-7)
