"""What is known of a batch's padding, and products for several layers at once, change no loss."""

from functools import partial

import pytest
import torch

from seqattn import ops
from seqattn.attention.cache import KeysValues
from seqattn.attention.heads import MultiHeadAttention
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.attention.masks import padded_right
from seqattn.data.batch import collate
from seqattn.ops.cross_entropy import LossTerms
from seqattn.training.optim import adamw
from seqattn.training.schedules import constant
from seqattn.training.tasks.seq2seq import Seq2SeqTask
from seqattn.training.tasks.settings import Optimization
from tests.builders import make_transformer
from tests.models.test_no_waiting import MODELS, meta  # noqa: F401
from tests.operations import operations
from tests.tolerance import close

RAGGED = collate(
    [[4, 5, 6, 7, 8, 9, 3], [5, 3], [6, 7, 3]], [[5, 6, 3], [4, 5, 6, 7, 3], [3]], [0, 1, 2]
)
EVEN = collate([[4, 5, 6, 3], [5, 9, 9, 3]], [[5, 6, 3], [7, 4, 3]], [0, 1])


def learnt(model, batch, **options):
    model.zero_grad()
    sides = (batch.source, batch.target_input, batch.target_output)
    loss = model.loss(*sides, LossTerms(label_smoothing=0.1), **options)
    loss.smoothed.backward()
    gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    return torch.cat([loss.smoothed.detach()[None], *gradients])


@pytest.mark.parametrize("name", MODELS)
def test_nothing_moves(monkeypatch, name):
    model = MODELS[name]().double().eval()  # no dropout
    for batch, rows in ((RAGGED, "filled"), (EVEN, "full")):
        wanted = learnt(model, batch)
        with padded_right(rows):
            known = learnt(model, batch, tokens=batch.target_tokens)
        close(known, wanted, 1e-9)
    model.train()
    results = []
    for joins in (False, True):
        monkeypatch.setattr(ops, "joins_products", lambda x, joins=joins: joins)
        torch.manual_seed(0)
        results.append(learnt(model, EVEN))
    close(*results, 1e-9)


class Doubled(MultiHeadAttention):
    """An attention of one's own, with other keys and values."""

    def project(self, memory):
        return KeysValues(*(2 * part for part in super().project(memory)))


def test_projections_of_ones_own_are_not_replaced_by_a_joint_product(monkeypatch):
    own = partial(Doubled, num_heads=2, num_kv_heads=2, kernel=SoftmaxKernel)
    model, results = make_transformer(own).double().train(), []
    for joins in (False, True):
        monkeypatch.setattr(ops, "joins_products", lambda x, joins=joins: joins)
        torch.manual_seed(0)
        results.append(learnt(model, EVEN))
    close(*results, 1e-9)


def operations_of(batch):
    task = Seq2SeqTask(make_transformer().to("meta").train(), Optimization(adamw, constant(0)))
    batch = batch.to("meta")
    with padded_right(), operations() as names:
        total = task.training_loss(batch).total
    before = names.copy()
    with operations() as names:
        total.backward()
    return before, names


def test_without_padding_nothing_is_masked_or_gathered(meta):  # noqa: F811
    forward, backward = operations_of(EVEN)
    padding = {"masked_fill", "index", "index_put", "argsort", "any"}
    assert not padding & (forward.keys() | backward.keys())


def test_with_padding_no_row_is_taken_for_empty_and_gradients_are_not_sorted(meta):  # noqa: F811
    forward, backward = operations_of(RAGGED)
    assert forward["index_put_"] == 1  # the gradient of the features
    assert not {"masked_fill", "any"} & (forward.keys() | backward.keys())
    assert not {"index_put", "_index_put_impl_"} & backward.keys()


def test_layers_that_read_one_tensor_share_a_product(meta):  # noqa: F811
    """Two layers each: one product for query, key and value, and one for all keys and values of
    the source."""
    forward, _ = operations_of(EVEN)
    encoder, decoder = (
        1 + 1 + 2,
        1 + 1 + 2 + 2,
    )  # projections, output; cross-attention; feed-forward
    assert forward["addmm"] == 2 * encoder + 2 * decoder + 1
