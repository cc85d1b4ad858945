"""The Transformer against one assembled from PyTorch's layers, and its choices."""

import math

import pytest
import torch
from torch import nn

from seqattn.errors import UserError
from seqattn.positions import SinusoidalPosition
from seqattn.tokens import PAD
from tests.builders import (
    DIM,
    HEADS,
    POSITIONS,
    VOCABULARY,
    copy_attention,
    copy_rest,
    heads,
    load_choice,
    load_variant,
    make_transformer,
    padded,
    random_ids,
    randomised,
    targets,
)
from tests.models.recurrents import make_recurrent
from tests.tolerance import close

SOURCES = padded([[4, 5, 6, 7, 8, 9, 3], [9, 4, 3]])
TARGETS = padded([[2, 5, 6, 7, 10], [2, 4, 4]])


def written_out(model, source, target, pre_norm):
    """The same model of PyTorch's parts, with the same weights."""
    inner, dropout = 20, 0.0
    memory = embedded(model.source_embedding.table.weight, source)
    for ours in model.encoder.layers:
        layer = nn.TransformerEncoderLayer(
            DIM, HEADS, inner, dropout, batch_first=True, norm_first=pre_norm
        )
        copy_attention(layer.self_attn, ours.self_attention)
        copy_rest(layer, ours, (ours.attend, ours.feed))
        memory = layer(memory, src_key_padding_mask=source == PAD)
    memory = normed(memory, model.encoder.norm, pre_norm)
    x = embedded(model.target_embedding.table.weight, target)
    future = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
    for ours in model.decoder.layers:
        layer = nn.TransformerDecoderLayer(
            DIM, HEADS, inner, dropout, batch_first=True, norm_first=pre_norm
        )
        copy_attention(layer.self_attn, ours.self_attention)
        copy_attention(layer.multihead_attn, ours.cross_attention)
        copy_rest(layer, ours, (ours.attend, ours.cross, ours.feed))
        x = layer(x, memory, tgt_mask=future, memory_key_padding_mask=source == PAD)
    return normed(x, model.decoder.norm, pre_norm) @ model.head.linear.weight.T


def embedded(table, ids):
    x = table[ids] * math.sqrt(DIM)
    for t in range(ids.shape[1]):
        for c in range(DIM):
            angle = t / 10000 ** (c // 2 * 2 / DIM)
            x[:, t, c] += math.cos(angle) if c % 2 else math.sin(angle)
    return x


def normed(x, norm, pre_norm):
    if not pre_norm:
        return x
    return nn.functional.layer_norm(x, (DIM,), norm.weight, norm.bias)


@pytest.mark.parametrize("pre_norm", [True, False])
@pytest.mark.parametrize(("sharing", "joint"), [("all", True), ("target", False), ("none", False)])
def test_it_equals_a_transformer_of_pytorchs_layers(pre_norm, sharing, joint):
    model = make_transformer(
        position=SinusoidalPosition,
        layers=(3, 1),
        joint=joint,
        pre_norm=pre_norm,
        share_embeddings=sharing,
    )
    expected = written_out(model, SOURCES, TARGETS, pre_norm)
    real = TARGETS != PAD
    got = model(SOURCES, TARGETS)
    close(got[real], expected[real], 1e-4)
    upstream = torch.randn_like(got)[real]
    tables = (model.source_embedding.table.weight, model.head.linear.weight)
    ours = torch.autograd.grad((got[real] * upstream).sum(), tables)
    theirs = torch.autograd.grad((expected[real] * upstream).sum(), tables)
    for one, other in zip(ours, theirs):
        close(one, other, 1e-3)


@pytest.mark.parametrize("scheme", sorted(POSITIONS))
def test_encoder_and_decoder_of_other_depths_and_widths_decode_through_the_cache(scheme):
    model = make_transformer(
        heads(HEADS, 2),
        POSITIONS[scheme],
        layers=(1, 3),
        joint=False,
        encoder_dim=16,
        share_embeddings="target",
    )
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (1, 3)
    memory = model.encode(SOURCES)
    assert memory.outputs.shape[2] == 16
    ids = targets(2, 5)
    state = model.start(memory)
    steps = [model.decode(ids[:, t : t + 1], state) for t in range(5)]
    close(torch.cat(steps, dim=1), model(SOURCES, ids), 5e-5)


@pytest.mark.parametrize("pre_norm", [True, False])
@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
def test_every_parameter_of_every_shape_is_trained(pre_norm, norm, activation):
    model = make_transformer(
        position=POSITIONS["learned"], pre_norm=pre_norm, norm=norm, activation=activation
    )
    kinds = {"layernorm": nn.LayerNorm, "rmsnorm": nn.RMSNorm}
    found = {type(m) for m in model.modules() if isinstance(m, tuple(kinds.values()))}
    assert found == {kinds[norm]}
    model(SOURCES, TARGETS).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.isfinite().all(), name
        if not name.endswith("key.bias"):  # the softmax does not see what all keys share
            assert parameter.grad.abs().max() > 1e-6, name
    norms = sum(isinstance(module, kinds[norm]) for module in model.modules())
    assert norms == 2 * 2 + 2 * 3 + (2 if pre_norm else 0)


@pytest.mark.parametrize(
    ("sharing", "source_is_target", "target_is_output"),
    [
        ("all", True, True),
        ("target", False, True),
        ("inputs", True, False),
        ("none", False, False),
    ],
)
@pytest.mark.parametrize("make", [make_transformer, make_recurrent])
def test_shared_tables_are_one_tensor(make, sharing, source_is_target, target_is_output):
    model = make(share_embeddings=sharing)
    source = model.source_embedding.table.weight.data_ptr()
    target = model.target_embedding.table.weight.data_ptr()
    assert (source == target) is source_is_target
    assert (target == model.head.linear.weight.data_ptr()) is target_is_output
    fresh = randomised(make(share_embeddings=sharing), seed=9)
    assert not torch.equal(fresh(SOURCES, TARGETS), model(SOURCES, TARGETS))
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(SOURCES, TARGETS), model(SOURCES, TARGETS))


def test_every_part_of_other_toolkits_models_is_trained_and_no_bias_is_left():
    wide = heads(bias=False, head_dim=10)
    model = make_transformer(wide, cross=wide, bias=False, branch_norm=True, embedding_norm=True)
    assert model.decoder.layers[0].cross_attention.query.weight.shape == (HEADS * 10, DIM)
    model(SOURCES, TARGETS).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert not name.endswith("bias")
        assert parameter.grad.abs().max() > 1e-6, name


def test_an_output_bias_is_added_to_the_logits():
    plain, biased = (make_transformer(output_bias=bias) for bias in (False, True))
    biased.load_state_dict(plain.state_dict(), strict=False)
    with torch.no_grad():
        expected = plain(SOURCES, TARGETS) + biased.head.linear.bias
        close(biased(SOURCES, TARGETS), expected, 1e-6)


def test_an_output_softcap_bounds_the_logits():
    plain, capped = (make_transformer(output_softcap=cap) for cap in (None, 0.5))
    capped.load_state_dict(plain.state_dict())
    with torch.no_grad():
        expected = plain(SOURCES, TARGETS)
        assert expected.abs().max() > 0.6
        close(capped(SOURCES, TARGETS), 0.5 * torch.tanh(expected / 0.5), 1e-6)


def test_separate_vocabularies_have_tables_of_their_own_size():
    model = make_transformer(joint=False, share_embeddings="target")
    assert model.source_embedding.table.weight.shape == (VOCABULARY + 2, DIM)
    assert model.head.linear.weight.shape == (VOCABULARY, DIM)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"joint": False, "share_embeddings": "all"},
            "model.share_embeddings=all needs one vocabulary for both sides; set "
            "tokenizer.joint=true, or model.share_embeddings=target",
        ),
        (
            {"encoder_dim": 16, "share_embeddings": "all"},
            "model.share_embeddings=all needs model.encoder_dim equal to model.dim (24), got 16; "
            "set model.share_embeddings=target",
        ),
        (
            {"joint": False, "share_embeddings": "inputs"},
            "model.share_embeddings=inputs needs one vocabulary for both sides; set",
        ),
        ({"encoder_dim": 22, "share_embeddings": "none"}, "num_heads must divide model.dim (22)"),
    ],
)
def test_a_shape_that_cannot_be_is_refused_in_words(options, text):
    with pytest.raises(UserError) as caught:
        make_transformer(**options)
    assert str(caught.value).startswith(text)


def test_teacher_forcing_below_one_is_refused_in_words():
    model = make_transformer()
    with pytest.raises(UserError, match=r"^a Transformer does not support teacher_f"):
        model(SOURCES, TARGETS, teacher_forcing=0.5)


def test_learned_positions_limit_source_and_target_and_others_do_not():
    model = make_transformer(position=POSITIONS["learned"])
    assert (model.max_source_length, model.max_target_length) == (40, 40)
    with pytest.raises(
        UserError, match=r"^position=learned supports at most position\.max_length \(40\)"
    ):
        model.encode(random_ids(1, 41))
    state = model.start(model.encode(SOURCES))
    for _ in range(40):
        model.decode(torch.full((2, 1), 5), state)
    with pytest.raises(
        UserError, match=r"^position=learned supports at most position\.max_length \(40\)"
    ):
        model.decode(torch.full((2, 1), 5), state)
    free = make_transformer(position=SinusoidalPosition)
    assert (free.max_source_length, free.max_target_length) == (None, None)


@torch.no_grad()  # of gradients the conformance tests tell
@pytest.mark.parametrize(
    "scheme",
    [
        "rope",
        "copying",
        *(
            pytest.param(x, marks=pytest.mark.exhaustive)
            for x in sorted(POSITIONS.keys() - {"rope"})
        ),
    ],
)
def test_it_compiles_whole_and_gives_the_same(scheme):
    torch.compiler.reset()
    if scheme == "copying":
        model = make_transformer(layers=(1, 1), copy=True)
    else:
        model = make_transformer(heads(HEADS, 2), POSITIONS[scheme], layers=(1, 1))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    real = TARGETS != PAD
    got, expected = compiled(SOURCES, TARGETS), model(SOURCES, TARGETS)
    close(got[real], expected[real])


def test_autocast_to_bfloat16_stays_close_to_float32():
    model = make_transformer(position=POSITIONS["rope"])
    exact = model(SOURCES, TARGETS)
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(SOURCES, TARGETS)
    torch.testing.assert_close(rough.float(), exact, atol=0.1, rtol=0.1)


@torch.inference_mode()
@pytest.mark.parametrize("name", ["mha", "entmax"])
@pytest.mark.parametrize("scheme", ["rope", "deberta"])
def test_decoding_under_autocast_to_bfloat16_stays_close_to_float32(name, scheme):
    model = make_transformer(load_variant(name), load_choice("position", scheme))
    exact = model(SOURCES, TARGETS)
    with torch.autocast("cpu", torch.bfloat16):
        state = model.start(model.encode(SOURCES))
        rough = torch.cat([model.decode(ids, state) for ids in TARGETS.split(1, dim=1)], dim=1)
    real = TARGETS != PAD
    close(rough.float()[real], exact[real], 0.1)
