"""onnxruntime computes what a Transformer computes, whatever its attention and positions are."""

import sys

import numpy as np
import pytest
import torch
from torch import nn

from seqattn.errors import UserError
from seqattn.extras.exchange.onnx_export import OnnxDecoder, largest_difference
from seqattn.extras.exchange.onnx_graphs import DECODER, ENCODER, STEP, write_graphs
from seqattn.models.transformer import Slots, TransformerConfig
from seqattn.positions import Position
from tests.builders import (
    DIM,
    VOCABULARY,
    heads,
    load_choice,
    make_transformer,
    padded,
    position_choices,
    random_ids,
    randomised,
    targets,
)
from tests.nodes import made

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")
ATTENTIONS = {
    "mha": heads(),
    "gqa": heads(num_kv_heads=2),
    "mqa": heads(num_kv_heads=1),
    "pruned": heads(kept_heads=[0, 3]),
    "sliding_window": load_choice("attention", "sliding_window", small=True),
    "linear": load_choice("attention", "linear", small=True),
    "performer": load_choice("attention", "performer", small=True),
}

EMBEDDED = "none", "sinusoidal", "learned", "rope"
"""Positions that linear attention takes."""
PAIRS = [
    (attention, position)
    for attention in ATTENTIONS
    for position in (EMBEDDED if attention in ("linear", "performer") else position_choices())
]


def built(encoder, decoder, cross, position, **shape):
    """A Transformer with one layer on either side."""
    slots = [[ATTENTIONS[name]] for name in (encoder, decoder, cross)]
    torch.manual_seed(0)
    config = made(
        TransformerConfig,
        dim=DIM,
        ffn_dim=20,
        encoder_layers=1,
        decoder_layers=1,
        dropout=0.0,
        **shape,
    )
    place = load_choice("position", position)
    return randomised(config.build(VOCABULARY, VOCABULARY, True, Slots(*slots, place))).eval()


def check(model, directory):
    """Both score alike, also sources that are padded on the left or have a single token."""
    write_graphs(model, directory)
    assert largest_difference(model, directory).nats < 1e-5
    rows, begun = [[*random_ids(1, 7)[0].tolist()], [5]], targets(2, 3)
    decoder = OnnxDecoder(directory, padded(rows, left=True).numpy())
    together = np.concatenate([decoder.logits(begun[:, n : n + 1].numpy()) for n in range(3)], 1)
    with torch.no_grad():
        for row, outputs, target in zip(rows, torch.from_numpy(together), begun, strict=True):
            alone = model(torch.tensor([row]), target[None])[0]
            torch.testing.assert_close(outputs, alone, atol=1e-5, rtol=1e-5)


@pytest.mark.exhaustive
def test_a_window_beside_linear_attention(tmp_path):
    parts = {"pre_norm": False, "embedding_norm": True, "output_bias": True}
    model = built("linear", "sliding_window", "mqa", "learned", **parts)
    model.head.linear.bias.data[5] = -10_000  # as of imported models
    check(model, tmp_path)


@pytest.mark.slow
def test_grouped_heads_beside_a_window_in_an_encoder_of_another_width(tmp_path):
    parts = {
        "share_embeddings": "none",
        "encoder_dim": 16,
        "norm": "rmsnorm",
        "output_softcap": 2.0,
    }
    check(built("sliding_window", "gqa", "linear", "t5", **parts), tmp_path)
    for name, inputs, outputs in LAYOUT:
        graph = onnx.load(tmp_path / f"{name}.onnx").graph
        assert {one.name: axes(one) for one in graph.input} == inputs
        assert {one.name: axes(one) for one in graph.output} == outputs
        assert not [node for node in graph.node if node.metadata_props]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("attention", "position"), PAIRS)
def test_each_attention_with_each_position(attention, position, tmp_path):
    cross = "mha" if attention == "sliding_window" else attention
    check(built(attention, attention, cross, position), tmp_path)


class Own(Position):
    """A scheme of a user's."""


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (nn.Linear(1, 1), "supports only Transformers that generate text, got a Linear"),
        (make_transformer(copy=True), "does not support copying; train with model.copy=false"),
        (make_transformer(position=Own), "does not support Own; train with position=rope or"),
        (
            make_transformer(load_choice("attention", "xca", small=True)),
            "does not support XCAKernel in the encoder; train with attention=mha, gqa, mqa,",
        ),
        (
            make_transformer(cross=load_choice("attention", "entmax", small=True)),
            "does not support EntmaxKernel in the decoder; train with attention=mha",
        ),
        (
            make_transformer(load_choice("attention", "moa", small=True)),
            "does not support MixtureOfAttention in the encoder; train with",
        ),
    ],
)
def test_what_the_graphs_lack_is_refused(model, reason, tmp_path):
    with pytest.raises(UserError, match=f"^to=onnx {reason}"):
        write_graphs(model, tmp_path)


def test_without_a_package_it_is_said(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(UserError, match=r"to=onnx needs onnxscript; run pip install .*\bonnx\b"):
        write_graphs(make_transformer(), tmp_path)


def axes(one):
    return [axis.dim_param or axis.dim_value for axis in one.type.tensor_type.shape.dim]


SOURCE = ["batch_size", "encoder_sequence_length"]
TARGET = ["batch_size", "decoder_sequence_length"]
PAST = "past_decoder_sequence_length"
BOTH = "key", "value"
LAYOUT = [
    (
        ENCODER,
        {"input_ids": SOURCE, "attention_mask": SOURCE},
        {"last_hidden_state": [*SOURCE, 16]},
    ),
    (
        DECODER,
        {
            "encoder_attention_mask": SOURCE,
            "input_ids": TARGET,
            "encoder_hidden_states": [*SOURCE, 16],
        },
        {"logits": [*TARGET, VOCABULARY]}
        | {f"present.0.decoder.{one}": ["batch_size", 2, TARGET[1], 6] for one in BOTH}
        | {f"present.0.encoder.{one}": ["batch_size", 4, SOURCE[1], 6] for one in BOTH},
    ),
    (
        STEP,
        {"encoder_attention_mask": SOURCE, "input_ids": ["batch_size", 1]}
        | {f"past_key_values.0.decoder.{one}": ["batch_size", 2, PAST, 6] for one in BOTH}
        | {f"past_key_values.0.encoder.{one}": ["batch_size", 4, SOURCE[1], 6] for one in BOTH},
        {"logits": ["batch_size", 1, VOCABULARY]}
        | {f"present.0.decoder.{one}": ["batch_size", 2, f"{PAST} + 1", 6] for one in BOTH},
    ),
]
