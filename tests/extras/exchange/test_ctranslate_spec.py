"""A Transformer for CTranslate2 gives what CTranslate2 then gives, whatever its parts are."""

import sys
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from seqattn.attention.heads import MultiHeadAttention
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.errors import UserError
from seqattn.extras.exchange.ctranslate_spec import LONGEST, ctranslate_spec
from seqattn.generation import BeamSearch, GreedySearch, LengthLimit
from seqattn.generation.generator import Generator
from seqattn.models.transformer import Slots, TransformerConfig
from seqattn.positions import (
    ALiBiPosition,
    LearnedPosition,
    Position,
    RotaryPosition,
    ShawPosition,
    SinusoidalPosition,
    T5Position,
)
from seqattn.tokens import BOS, EOS, PAD, RESERVED
from tests.builders import load_choice

ctranslate2 = pytest.importorskip("ctranslate2")
SIZE, HEADS = 60, 4
PIECES = ["<pad>", "<unk>", "<s>", "</s>", *map(str, range(RESERVED, SIZE))]
HALVES = partial(SinusoidalPosition, layout="halves", first=2, endpoint=True)
T5 = {
    "norm": "rmsnorm",
    "activation": "geglu_tanh",
    "head_dim": 10,
    "bias": False,
    "all_biases": False,
}
PARTS = {
    "plain": {},
    "post-norm": {"pre_norm": False},
    "gelu": {"activation": "gelu"},
    "swiglu, rmsnorm": {"activation": "swiglu", "norm": "rmsnorm"},
    "rmsnorm, post-norm": {"norm": "rmsnorm", "pre_norm": False},
    "tables apart": {"share_embeddings": "none"},
    "another encoder's width": {"share_embeddings": "target", "encoder_dim": 16},
    "no position": {"position": Position},
    "learned": {"position": partial(LearnedPosition, max_length=40)},
    "rope": {"position": RotaryPosition},
    "rope, stretched": {"position": partial(RotaryPosition, base=500.0, scaling=3.0)},
    "t5": {"position": partial(T5Position, num_buckets=8, max_distance=20)},
    "shaw": {"position": partial(ShawPosition, max_distance=4)},
    "shaw, values": {"position": partial(ShawPosition, max_distance=4, values=True)},
    "gqa": {"key_heads": (2, 2, 2)},
    "mqa, rope": {"key_heads": (1, 1, 1), "position": RotaryPosition},
    "key heads of all kinds": {"key_heads": (1, 4, 2)},
    "no bias": {"bias": False},
    "as Marian": {"activation": "silu", "pre_norm": False, "output_bias": True, "position": HALVES},
    "as BART": {"embedding_scale": 1.0, "embedding_norm": True, "output_bias": True},
    "as T5": {"position": T5Position, "share_embeddings": "inputs", **T5},
    "one head": {"heads": 1, "key_heads": (1, 1, 1)},
    "one narrow head": {"heads": 1, "key_heads": (1, 1, 1), "head_dim": 10},
    "one wide head": {"heads": 1, "key_heads": (1, 1, 1), "head_dim": 40, "bias": False},
    "one narrow head, shaw": {
        **{"heads": 1, "key_heads": (1, 1, 1), "head_dim": 10},
        "position": partial(ShawPosition, max_distance=4, values=True),
    },
    "one narrow head, rope": {
        "heads": 1,
        "key_heads": (1, 1, 1),
        "head_dim": 10,
        "position": RotaryPosition,
    },
    "one head, t5": {"heads": 1, "key_heads": (1, 1, 1), "position": T5Position},
    "one narrow head, t5": {"heads": 1, "key_heads": (1, 1, 1), "position": T5Position, **T5},
}


def made(
    position=SinusoidalPosition, key_heads=(4, 4, 4), bias=True, attention=None, head_dim=None,
    all_biases=True, heads=HEADS, **shape
):  # fmt: skip
    """A model that hardly says padding or ends, of weights that are nowhere else 0 or 1."""
    mha = partial(
        MultiHeadAttention, num_heads=heads, kernel=SoftmaxKernel, bias=bias, head_dim=head_dim
    )
    slots = [[attention or partial(mha, num_kv_heads=count)] * 2 for count in key_heads]
    sizes = {"dim": 32, "ffn_dim": 24, "encoder_layers": 2, "decoder_layers": 2, **shape}
    sizes["bias"] = all_biases
    torch.manual_seed(3)
    config = TransformerConfig(dropout=0.0, **sizes)
    model = config.build(SIZE, SIZE, True, Slots(*slots, position)).eval()
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "attention" in name and weights.dim() == 2:
                weights.mul_(2)
            if weights.dim() == 1:
                weights.add_(torch.randn_like(weights), alpha=0.3)
        model.head.linear.weight[[PAD, EOS]] = 0
    return model


def rows(lengths, seed):
    chance = torch.Generator().manual_seed(seed)
    return [torch.randint(RESERVED, SIZE, (n,), generator=chance).tolist() for n in lengths]


def named(ids):
    return [[PIECES[number] for number in row] for row in ids]


def test_quantizing_leaves_the_weights_of_the_model():
    model = made()
    before = {name: weights.clone() for name, weights in model.state_dict().items()}
    ctranslate_spec(model, PIECES, PIECES).optimize("int8")
    for name, weights in model.state_dict().items():
        assert torch.equal(weights, before[name]), name


@pytest.mark.parametrize("parts", PARTS)
def test_both_score_and_search_alike(parts, tmp_path):
    model = made(**PARTS[parts])
    spec = ctranslate_spec(model, PIECES, PIECES)
    spec.optimize()
    spec.save(str(tmp_path))
    translator = ctranslate2.Translator(str(tmp_path), compute_type="float32")
    sources, targets = rows([1, 7, 30], seed=1), rows([4, 12, 25], seed=2)
    scored = translator.score_batch(named(sources), named(targets))
    for source, target, theirs in zip(sources, targets, scored, strict=True):
        state = model.start(model.encode(torch.tensor([[*source, EOS]])))
        found = model.log_probabilities(torch.tensor([[BOS, *target]]), state).log_probabilities[0]
        own = found.gather(1, torch.tensor([*target, EOS])[:, None])[:, 0]
        torch.testing.assert_close(own, torch.tensor(theirs.log_probs), atol=1e-4, rtol=1e-4)
    limit, ended = LengthLimit(ratio=0.0, extra=14), [[*source, EOS] for source in sources]
    for search in (GreedySearch(limit=limit), BeamSearch(beam_size=3, limit=limit)):
        own = [best[0] for best in Generator(model, search).generate(ended)]
        theirs = translator.translate_batch(
            named(sources), beam_size=getattr(search, "beam_size", 1), max_decoding_length=14
        )
        assert named([best.ids for best in own]) == [one.hypotheses[0] for one in theirs]


def test_positions_end_where_the_table_does():
    spec = ctranslate_spec(made(LearnedPosition), PIECES, PIECES)
    assert len(spec.encoder.position_encodings.encodings.numpy()) == 512
    spec = ctranslate_spec(made(), PIECES, PIECES)
    assert len(spec.decoder.position_encodings.encodings.numpy()) == LONGEST


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"position": ALiBiPosition}, "does not support ALiBiPosition; train with position=none"),
        ({"copy": True}, "does not support copying; train with model.copy=false"),
        (
            {"attention": partial(load_choice("attention", "mha"), qk_norm=True)},
            "does not support norms of queries and keys; train with attention.qk_norm=false",
        ),
        ({"output_softcap": 30.0}, "has no caps on logits; train with model.output_softcap=null"),
        (
            {"decoder_layers": 0},
            "needs at least one decoder layer; train with model.decoder_layers=1",
        ),
        ({"attention": load_choice("attention", "entmax")}, "does not support EntmaxKernel in the"),
        (
            {"attention": partial(load_choice("attention", "mha"), kept_heads=[0, 2])},
            "does not support pruned heads; export the original bundle",
        ),
    ],
)
def test_what_ctranslate2_has_not_is_refused(parts, reason):
    if parts.get("decoder_layers") == 0:
        model = made()
        model.decoder.layers = nn.ModuleList()
    else:
        model = made(**parts)
    with pytest.raises(UserError, match=reason):
        ctranslate_spec(model, PIECES, PIECES)


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (None, "export and engine=ctranslate2 need CTranslate2 .*; run pip install .*export."),
        (SimpleNamespace(__version__="4.6.3"), "CTranslate2 4.6.3 is too old"),
    ],
)
def test_without_ctranslate2_or_with_an_old_one_it_is_said(module, reason, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", module)
    with pytest.raises(UserError, match=reason):
        ctranslate_spec(made(), PIECES, PIECES)


def test_a_model_of_another_kind_is_refused():
    with pytest.raises(UserError, match="only Transformers that generate text, got a Linear"):
        ctranslate_spec(nn.Linear(1, 1), PIECES, PIECES)


def test_attentions_of_other_heads_are_refused():
    few = partial(MultiHeadAttention, num_heads=2, num_kv_heads=2, kernel=SoftmaxKernel)
    many = partial(MultiHeadAttention, num_heads=4, num_kv_heads=4, kernel=SoftmaxKernel)
    config = TransformerConfig(dim=16, ffn_dim=8, encoder_layers=1, decoder_layers=1)
    model = config.build(SIZE, SIZE, True, Slots([few], [few], [many], SinusoidalPosition))
    with pytest.raises(UserError, match="needs the same number of heads in all decoder attentions"):
        ctranslate_spec(model, PIECES, PIECES)
