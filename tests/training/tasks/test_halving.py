"""A batch beyond the memory goes on in halves, and its gradient stays what it was."""

import weakref

import pytest
import torch

from seqattn.models.base import Seq2SeqModel
from seqattn.tokens import PAD
from tests.builders import make_transformer
from tests.forked_ranks import join, run_ranks
from tests.models.recurrents import make_recurrent
from tests.training.tasks.test_effective_batch import (
    Recorded,
    assert_same,
    batch_of,
    fit,
    joined,
    reference,
    rows,
    sides,
    task_of,
)

TOLD = "out of memory; splitting the batch in half"


def fails_forward(monkeypatch, most):
    """No loss of more than `most` rows fits."""
    own, seen = Seq2SeqModel.loss, []

    def loss(model, source, *rest):
        seen.append(len(source))
        if len(source) > most:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return own(model, source, *rest)

    monkeypatch.setattr(Seq2SeqModel, "loss", loss)
    return seen


class Failing(torch.autograd.Function):
    """Identity, whose gradient does not fit into the memory. Args: held: gets what it keeps."""

    @staticmethod
    def forward(ctx, x, held):
        ctx.kept = torch.zeros(3)
        held.append(weakref.ref(ctx.kept))
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to ...")


def fails_backward(monkeypatch, most):
    """No gradient of more than `most` rows fits; which graphs are there as each loss begins."""
    own, held, alive = Seq2SeqModel.loss, [], []

    def loss(model, source, *rest):
        alive.append([n for n, one in enumerate(held) if one() is not None])
        found = own(model, source, *rest)
        if len(source) <= most:
            return found
        return found._replace(smoothed=Failing.apply(found.smoothed, held))

    monkeypatch.setattr(Seq2SeqModel, "loss", loss)
    return held, alive


@pytest.mark.parametrize("most", [4, 2, 1])
def test_a_loss_that_does_not_fit_gives_the_gradient_of_the_whole(monkeypatch, capfd, most):
    pair = rows(7, seed=3)
    seen = fails_forward(monkeypatch, most)
    task = fit(task_of(), [pair, pair])
    monkeypatch.undo()
    assert max(seen) == 7
    for gradient in task.gradients:
        assert_same(gradient, reference(task.model, batch_of(*pair)), 1e-10)
    assert capfd.readouterr().err.count(TOLD) == 1


@pytest.mark.parametrize("most", [4, 1])
def test_weights_that_are_added_to_each_other_have_the_gradient_of_the_whole(monkeypatch, most):
    pair = rows(7, seed=3)  # an LSTM's biases have one gradient, a tensor that both are given
    model = make_recurrent(dropout=0.0).double().train()
    fails_forward(monkeypatch, most)
    task = fit(Recorded(model, task_of().optimization), [pair])
    monkeypatch.undo()
    assert_same(task.gradients[0], reference(task.model, batch_of(*pair)), 1e-10)


def test_gradients_that_do_not_fit_are_those_of_the_whole(monkeypatch, capfd):
    pair = rows(5, seed=3)
    fails_backward(monkeypatch, most=3)
    task = fit(task_of(), [pair])
    monkeypatch.undo()
    assert_same(task.gradients[0], reference(task.model, batch_of(*pair)), 1e-10)
    assert TOLD in capfd.readouterr().err


def test_graphs_that_did_not_fit_are_gone_before_halves_are_taken(monkeypatch):
    held, alive = fails_backward(monkeypatch, most=1)
    fit(task_of(), [rows(4, seed=3)])
    assert len(held) > 1
    assert not any(alive)


def test_a_gradient_that_does_not_fit_splits_all_batches_as_large(monkeypatch):
    pair = rows(6, seed=3)
    held, alive = fails_backward(monkeypatch, most=3)
    fit(task_of(), [pair] * 5, accumulate_grad_batches=5)
    assert (len(held), len(alive)) == (1, 1 + 2 * 5)


def test_a_loss_that_does_not_fit_repeats_no_other(monkeypatch):
    pair = rows(6, seed=3)
    seen = fails_forward(monkeypatch, most=3)
    fit(task_of(), [pair] * 5, accumulate_grad_batches=5)
    assert len(seen) == 3 * 5


def test_gradients_that_do_not_fit_beside_those_of_another_batch_begin_again(monkeypatch):
    several = [rows(2, seed=1), rows(5, seed=3)]
    fails_backward(monkeypatch, most=3)
    task = fit(task_of(), several, accumulate_grad_batches=2)
    monkeypatch.undo()
    assert_same(task.gradients[0], reference(task.model, joined(several)), 1e-10)


def short_rank(rank, port, path):
    """One rank of two, of which the first has memory for losses of two rows."""
    join(rank, port, 2)
    if rank == 0:
        fails_forward(pytest.MonkeyPatch(), most=2)
    own, options = sides()[rank::2], {"devices": 2, "strategy": "ddp"}
    task = fit(task_of(), own, accumulate_grad_batches=2, **options)
    torch.save((task.gradients, task.model.state_dict()), path / f"{rank}.pt")


def test_one_of_several_ranks_splits_its_batches(tmp_path):
    run_ranks(short_rank, 2, tmp_path)
    (gradients, weights), (others, _) = (torch.load(tmp_path / f"{n}.pt") for n in range(2))
    model, several = task_of().model, sides()
    model.load_state_dict(weights)
    for got, other, part in zip(gradients, others, (several[:4], several[4:]), strict=True):
        assert_same(got, other, 0)
        assert_same(got, reference(model, joined(part)), 1e-10)


def test_one_row_that_does_not_fit_is_refused(monkeypatch):
    fails_forward(monkeypatch, 0)
    with pytest.raises(torch.OutOfMemoryError):
        fit(task_of(), [rows(3, seed=1)])


def test_halves_draw_the_same_dropout_whatever_was_drawn_before_the_memory_ran_out(monkeypatch):
    def trained(before):
        model = make_transformer(dropout=0.3).train()
        task = Recorded(model, task_of().optimization)
        own = Seq2SeqModel.loss

        def loss(model, source, *rest):
            if len(source) > 3:
                torch.rand(before)
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return own(model, source, *rest)

        monkeypatch.setattr(Seq2SeqModel, "loss", loss)
        fit(task, [rows(6, seed=2)])
        monkeypatch.undo()
        return task.gradients[0]

    assert_same(trained(before=1), trained(before=5), 0.0)


def test_halves_are_the_rows_and_their_counts():
    batch = batch_of(*rows(5, seed=1))
    parts = batch.halves()
    assert [len(part.index) for part in parts] == [2, 3]
    assert torch.equal(torch.cat([part.source for part in parts]), batch.source)
    assert [part.source_tokens for part in parts] == [int((p.source != PAD).sum()) for p in parts]
    assert sum(part.target_tokens for part in parts) == batch.target_tokens
    assert batch_of(*rows(1, seed=1)).halves() == []
