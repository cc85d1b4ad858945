"""bf16-shadow trains as bf16-mixed to the bit, with copies of the weights."""

from functools import partial

import pytest
import torch

from seqattn.ops.layers import Linear
from seqattn.training.optim import adamw
from seqattn.training.precision import Shadow
from seqattn.training.tasks.seq2seq import Seq2SeqTask
from tests.training.tasks.test_effective_batch import fit, sides, task_of
from tests.training.tasks.test_halving import fails_backward


def trained(shadow, kind=Seq2SeqTask, **config):
    torch.manual_seed(3)
    task = task_of(partial(adamw, lr=0.01), torch.float32, kind, **config)
    precision = {"plugins": [Shadow("cpu")]} if shadow else {"precision": "bf16-mixed"}
    return fit(task, sides(), accumulate_grad_batches=3, max_epochs=2, **precision)


def assert_equal(plain, shadow):
    for one, other in zip(plain.model.parameters(), shadow.model.parameters(), strict=True):
        assert one.dtype == torch.float32
        assert torch.equal(one, other)


@pytest.mark.parametrize("config", [{}, {"checkpoint_activations": True}, {"copy": True}])
def test_weights_are_those_of_autocast_to_the_bit(monkeypatch, config):
    collect, counts = Shadow.collect, []

    def counted(shadow):
        counts.append(sum(copy.grad is not None for copy in shadow._shadow.copies))
        collect(shadow)

    monkeypatch.setattr(Shadow, "collect", counted)
    plain, shadow = (trained(shadow, **config) for shadow in (False, True))
    assert_equal(plain, shadow)
    own = shadow.model.modules()
    linear = [one for one in own if type(one) is Linear and one is not shadow.model.head.linear]
    assert counts == [sum(1 + (part.bias is not None) for part in linear)] * 12
    assert not any(part.narrow for part in shadow.model.modules() if isinstance(part, Linear))


def test_frozen_weights_have_no_gradients_until_they_thaw():
    class Thawing(Seq2SeqTask):
        def training_step(self, batches, index):
            self.model.encoder.requires_grad_(index > 0)
            return super().training_step(batches, index)

    assert_equal(*(trained(shadow, Thawing) for shadow in (False, True)))


def test_gradients_that_failed_are_not_added(monkeypatch):
    fails_backward(monkeypatch, most=3)
    assert_equal(*(trained(shadow) for shadow in (False, True)))
