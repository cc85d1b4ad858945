"""The auxiliary losses of attentions reach the gradient, per token, and the log."""

from functools import partial

import torch
import torch.nn.functional as F

from seqattn.attention.experts import Balance, MixtureOfAttention, auxiliary_losses
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.ops.cross_entropy import LossTerms
from seqattn.training.schedules import constant
from seqattn.training.tasks.seq2seq import Optimization
from tests.builders import make_transformer
from tests.training.tasks.test_effective_batch import (
    SMOOTHING,
    Recorded,
    assert_same,
    batch_of,
    fit,
    no_steps,
    sides,
)


class Logged(Recorded):
    """Keeps what is logged, too."""

    def log(self, name, value, **options):
        self.logged = {**getattr(self, "logged", {}), name: float(value)}


def mixture(checkpointing=False):
    factory = partial(
        MixtureOfAttention,
        num_heads=4,
        num_experts=6,
        kernel=SoftmaxKernel,
        balance=Balance(load=0.5, z=0.2),
    )
    model = make_transformer(factory, dropout=0.0, checkpoint_activations=checkpointing)
    return Logged(
        model.double().train(),
        Optimization(no_steps, constant(0), terms=LossTerms(label_smoothing=SMOOTHING)),
    )


def wanted_gradient(model, several):
    """Sums of cross-entropy and of tokens x auxiliary loss, over all tokens of the window."""
    model.zero_grad()
    tokens = 0
    for pair in several:
        batch = batch_of(*pair)
        with auxiliary_losses(model) as losses:
            logits = model(batch.source, batch.target_input)
        gold = batch.target_output
        count = int((gold != 0).sum())
        loss = F.cross_entropy(
            logits.flatten(0, 1),
            gold.flatten(),
            ignore_index=0,
            label_smoothing=SMOOTHING,
            reduction="sum",
        )
        (loss + count * sum(part.loss for part in losses)).backward()
        tokens += count
    return [p.grad / tokens for p in model.parameters()]


def test_the_losses_are_added_per_token_and_the_balance_is_logged():
    several = sides()[:3]
    for checkpointing in (False, True):
        task = fit(mixture(checkpointing), several, accumulate_grad_batches=3)
        (got,) = task.gradients
        assert_same(got, wanted_gradient(task.model, several), 1e-10)
        total = tokens = 0.0
        for batch in (batch_of(*pair) for pair in several):
            with auxiliary_losses(task.model) as losses:
                task.model(batch.source, batch.target_input)
            assert len(losses) == 4
            total += sum(float(part.balance) for part in losses) / 4 * batch.target_tokens
            tokens += batch.target_tokens
        torch.testing.assert_close(task.logged["train/balance"], total / tokens)
