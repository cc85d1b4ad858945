"""The training benchmark: equal contestants, real training, a whole contest."""

import pytest
import torch

from seqattn.benchmarks.own import OwnRun, OwnStep
from seqattn.benchmarks.plain import PlainLoop
from seqattn.benchmarks.profile import profile_training
from seqattn.benchmarks.training import TrainingPlan, Turn, measure_training
from seqattn.errors import UserError
from tests.benchmarks.small import SHAPE, copying_batches
from tests.builders import copy_attention, copy_rest, randomised

LOOPS = [PlainLoop, OwnStep, OwnRun]


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
    assert len({loop(SHAPE).parameters for loop in LOOPS}) == 1


@pytest.mark.parametrize("loop", [OwnStep, OwnRun])
def test_with_the_same_weights_the_contestants_take_the_same_steps(loop):
    batches = copying_batches(3)
    plain, own = PlainLoop(SHAPE), loop(SHAPE)
    randomised(own.model, scale=0.1)
    copy_weights(plain.model, own.model)
    plain.optimizer = torch.optim.AdamW(
        plain.model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0
    )
    plain.run(batches)
    own.run(batches)
    with torch.no_grad():
        batch = batches[0]
        theirs = plain.model.eval()(batch.source, batch.target_input)
        ours = own.model.eval()(batch.source, batch.target_input)
    real = batch.target_output != 0
    torch.testing.assert_close(ours[real], theirs[real], atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("precision", ["32", "bf16-mixed"])
@pytest.mark.parametrize("loop", [PlainLoop, OwnStep])
def test_a_contestant_really_learns(loop, precision):
    contestant = loop(SHAPE, precision, lr=1e-2)
    contestant.run(copying_batches(4) * 15)
    first, last = sum(contestant.losses[:4]) / 4, sum(contestant.losses[-4:]) / 4
    assert last < 0.8 * first


@pytest.mark.parametrize("loop", LOOPS)
def test_the_units_are_the_real_target_tokens(loop):
    batches = copying_batches(2)
    sample = loop(SHAPE).run(batches)
    assert sample.units == sum(int((batch.target_output != 0).sum()) for batch in batches)
    assert sample.seconds > 0


def test_a_contest_runs_in_two_processes_and_compares_with_the_plain_loop():
    plan = TrainingPlan(SHAPE, copying_batches(6), steps=2, threads=1)
    rows = {row.turn: row for row in measure_training(plan)}
    assert [turn.loop for turn in rows] == [
        "plain", "plain", "seqattn", "seqattn under Lightning", "plain", "seqattn",
    ]  # fmt: skip
    written, kept = rows[Turn("plain", "32", False)], rows[Turn("plain", "32", True)]
    assert written.over_plain == written.over_plain_same_memory == (1.0, 1.0, 1.0)
    assert kept.over_plain_same_memory == (1.0, 1.0, 1.0)
    for row in rows.values():
        assert 0 < row.over_plain.low <= row.over_plain.median <= row.over_plain.high


def test_a_plan_without_batches_for_a_round_is_refused():
    with pytest.raises(UserError, match="need 4 batches, got 3"):
        TrainingPlan(SHAPE, copying_batches(3), steps=2)


def test_a_plan_with_an_unknown_precision_is_refused():
    with pytest.raises(UserError, match="of 32, bf16-mixed, got 16-mixed"):
        TrainingPlan(SHAPE, copying_batches(2), steps=1, precisions=("16-mixed",))


def test_a_profile_names_the_matrix_products_of_a_step():
    operations = profile_training(SHAPE, copying_batches(2), "32")
    assert sum(found.share for found in operations) == pytest.approx(1.0)
    assert {"aten::mm", "aten::addmm"} <= {found.name for found in operations}
