"""A mixture of attention experts from the command line."""

import seqattn
from seqattn.attention.experts import MixtureOfAttention
from seqattn.attention.heads import MultiHeadAttention
from seqattn.attention.kernels.softmax import SoftmaxKernel
from tests.cli.small import logged, succeed, train_arguments


def test_a_run_logs_its_balance_and_its_cross_attention_is_multi_head(capfd, corpus, tmp_path):
    run = tmp_path / "run"
    words = ("attention=moa", "attention.num_heads=2", "attention.num_experts=3", "model.dim=16")
    words = (*words, "trainer.log_every_n_steps=1", f"run_dir={run}")
    succeed(capfd, "train", *train_arguments(corpus, *words))
    balances = [row["train/balance"] for row in logged(run)]
    told = [float(balance) for balance in balances if balance]
    assert len(told) == 4
    assert all(0.5 < balance <= 1.5 for balance in told)
    model = seqattn.load(str(run / "model")).model
    for stack in (model.encoder, model.decoder):
        assert isinstance(stack.layers[0].self_attention, MixtureOfAttention)
    cross = model.decoder.layers[0].cross_attention
    assert isinstance(cross, MultiHeadAttention)
    assert isinstance(cross.kernel, SoftmaxKernel)
    assert (cross.num_heads, cross.num_kv_heads) == (2, 2)
