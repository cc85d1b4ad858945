"""The recurrent benchmark: contestants that are one function, real training, a whole contest."""

import pytest
import torch
from torch import nn

from benchmarks.loops import OwnLoop, PlainLoop
from benchmarks.recurrent_models import (
    JoeyRecurrent,
    RecurrentShape,
    TextbookRecurrent,
    has_joey,
    own_recurrent,
)
from benchmarks.training import RecurrentSuite
from tests.benchmarks.small import SHAPE, CopyingText, assert_same_steps, copying_batches
from tests.builders import randomised

SHAPES = [
    RecurrentShape(SHAPE.vocabulary, 24, name, feeding, dropout=0.0)
    for name in ("bahdanau", "luong_general", "luong_concat")
    for feeding in (False, True)
    if not (feeding and name == "bahdanau")
]


def copy_weights(plain, own):
    """Ours into the textbook's model."""
    plain.embedding.load_state_dict(own.target_embedding.table.state_dict())
    ways = {"": own.encoder.ahead[0], "_reverse": own.encoder.back[0]}
    both = {k + ending: v for ending, way in ways.items() for k, v in way.state_dict().items()}
    plain.encoder.load_state_dict(both)
    plain.bridge.load_state_dict(own.bridge.maps[0].state_dict())
    plain.cell_bridge.load_state_dict(own.bridge.maps[1].state_dict())
    state = own.decoder.layers[0].rnn.state_dict()
    plain.cell.load_state_dict({k.removesuffix("_l0"): v for k, v in state.items()})
    for name in ("key", "query", "v"):
        part = getattr(plain, name)
        if isinstance(part, nn.Module):
            part.load_state_dict(getattr(own.decoder.cross_attention.score, name).state_dict())
    plain.merge.load_state_dict(own.decoder.readout.merge.state_dict())


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_with_the_same_weights_ours_and_the_textbooks_take_the_same_steps(shape):
    plain = PlainLoop(TextbookRecurrent(shape))
    own = OwnLoop(randomised(own_recurrent(shape), scale=0.1))
    assert plain.parameters == own.parameters
    copy_weights(plain.model, own.model)
    assert_same_steps(plain, own)


@pytest.mark.skipif(not has_joey(SHAPES[-1]), reason="joeynmt is not installed")
def test_joey_nmts_model_learns_and_does_not_depend_on_the_order_of_sentences():
    shape = SHAPES[-1]
    loop = PlainLoop(JoeyRecurrent(shape), lr=1e-2)
    batches = copying_batches(4)
    loop.run(batches * 10)
    assert sum(loop.losses[-4:]) < 0.8 * sum(loop.losses[:4])
    batch, order = batches[0], torch.tensor([3, 1, 4, 0, 2])
    logits = loop.model.eval()(batch.source, batch.target_input)
    moved = loop.model(batch.source[order], batch.target_input[order])
    torch.testing.assert_close(moved, logits[order], atol=1e-5, rtol=1e-5)


def test_a_contest_compares_with_the_textbook_and_joey_where_it_is_installed(capsys):
    rows = RecurrentSuite(
        corpus=CopyingText(),
        alignments=["bahdanau", "luong_general"],
        dim=24,
        max_tokens=[64],
        steps=1,
        rounds=1,
    ).run()
    joey = has_joey(SHAPES[1])
    loops = ["textbook", *(["Joey NMT"] if joey else []), "seqattn"]
    assert [(row["model"], row["loop"]) for row in rows] == [
        ("bahdanau", "textbook"),
        ("bahdanau", "seqattn"),
        *(("luong_general", loop) for loop in loops),
        *(("luong_general, fed", loop) for loop in loops),
    ]
    assert rows[0]["x textbook"] == (1.0, 1.0, 1.0)
    assert rows[1]["x Joey NMT"] is None
    assert (rows[-1]["x Joey NMT"] is not None) is joey
    assert "x textbook" in capsys.readouterr().out
