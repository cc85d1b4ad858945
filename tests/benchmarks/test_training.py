"""The training benchmark: contestants of one size, real training, a whole contest."""

from functools import partial

import pytest

from benchmarks.loops import LightningLoop, OwnLoop, PlainLoop
from benchmarks.training import TrainingSuite
from benchmarks.transformer_models import PlainTransformer, own_transformer
from seqattn.errors import UserError
from tests.benchmarks.small import (
    SHAPE,
    CopyingText,
    assert_same_steps,
    copying_batches,
    shape_of,
    stand_in,
)
from tests.builders import copy_attention, copy_rest, randomised
from tests.nodes import made

SUITE = partial(TrainingSuite, corpus=CopyingText(), shape=shape_of, max_tokens=[64], seed=1)

PLAIN = ["torch.nn.Transformer", "HF Marian", "Joey NMT", "Eole"]


def make_plain(**options):
    return PlainLoop(PlainTransformer(SHAPE), **options)


def make_own(kind=OwnLoop, **options):
    return kind(own_transformer(SHAPE), **options)


LOOPS = [make_plain, make_own, partial(make_own, LightningLoop)]


def copy_weights(plain, own):
    """Ours into the plain model."""
    theirs = plain.transformer
    plain.embedding.load_state_dict(own.target_embedding.table.state_dict())
    for layer, ours in zip(theirs.encoder.layers, own.encoder.layers, strict=True):
        copy_attention(layer.self_attn, ours.self_attention)
        copy_rest(layer, ours, (ours.attend, ours.feed))
    for layer, ours in zip(theirs.decoder.layers, own.decoder.layers, strict=True):
        copy_attention(layer.self_attn, ours.self_attention)
        copy_attention(layer.multihead_attn, ours.cross_attention)
        copy_rest(layer, ours, (ours.attend, ours.cross, ours.feed))
    theirs.encoder.norm.load_state_dict(own.encoder.norm.state_dict())
    theirs.decoder.norm.load_state_dict(own.decoder.norm.state_dict())


def test_all_contestants_have_as_many_parameters():
    assert len({loop().parameters for loop in LOOPS}) == 1


@pytest.mark.parametrize("kind", [OwnLoop, LightningLoop])
def test_with_the_same_weights_the_contestants_take_the_same_steps(kind):
    plain, own = make_plain(), make_own(kind)
    randomised(own.model, scale=0.1)
    copy_weights(plain.model, own.model)
    assert_same_steps(plain, own)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("loop", [make_plain, make_own])
def test_a_contestant_really_learns(loop, precision):
    contestant = loop(precision=precision, lr=1e-2)
    contestant.run(copying_batches(4) * 4)
    first, last = sum(contestant.losses[:4]) / 4, sum(contestant.losses[-4:]) / 4
    assert last < 0.95 * first


@pytest.mark.parametrize("loop", LOOPS)
def test_the_units_are_the_real_target_tokens(loop):
    batches = copying_batches(2)
    sample = loop().run(batches)
    assert sample.units == sum(int((batch.target_output != 0).sum()) for batch in batches)
    assert sample.seconds > 0


def test_a_contest_compares_ours_with_the_others_on_the_same_batches(monkeypatch):
    stand_in(monkeypatch)
    rows = SUITE(steps=2, rounds=2, threads=1, precisions=["fp32"]).run()
    assert [(row["contestant"], row["freed memory"]) for row in rows] == [
        ("seqattn", "kept"),
        ("seqattn under Lightning", "kept"),
        *((peer, kept) for peer in PLAIN for kept in ("", "kept")),
        ("matrix products only", ""),
    ]
    # a stand-in's seconds are its tokens, half of them where memory is kept
    assert [row["target tokens/s"].median for row in rows[:-1]] == [2.0, 2.0, *(4 * [1.0, 2.0])]
    assert [row["seqattn speedup"].median for row in rows[:4]] == [1.0, 1.0, 2.0, 1.0]
    assert len({row["parameters"] for row in rows[:-1]}) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precisions": ["fp16"]}, "precisions must be"),
        ({"max_tokens": []}, "max_tokens must be"),
        ({"steps": 0}, "steps must be a whole number from 1 to 1,000,000,000, got 0"),
        ({"threads": 0}, "threads must be"),
    ],
)
def test_a_suite_refuses_values_outside_their_bounds(options, message):
    with pytest.raises(UserError, match=message):
        made(SUITE.func, **options)


def test_a_profile_names_the_matrix_products_of_a_step(capsys):
    rows = SUITE(steps=1, rounds=1, precisions=["fp32"], profile=True).run()
    assert sum(row["share"] for row in rows) == pytest.approx(1.0)
    assert {"aten::mm", "aten::addmm"} <= {row["operator"] for row in rows}
    assert capsys.readouterr().out.count("aten::") < len(rows)
