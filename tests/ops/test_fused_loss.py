"""The loss of one kernel over the logits, which needs a GPU and Triton, against PyTorch's."""

import importlib.util
import os

import pytest
import torch
import torch.nn.functional as F

from seqattn.ops import vocabulary_loss
from seqattn.ops.cross_entropy import LossTerms
from seqattn.ops.gpu import fused_loss

N, D, V = 9, 6, 13


def with_pytorch(logits, targets, sums, smoothing):
    """What `to_gradients` computes."""
    logits_, log_probabilities = logits.clone(), logits.float().log_softmax(dim=-1)
    sums[0] = -log_probabilities.gather(1, targets[:, None])[:, 0]
    sums[1] = -log_probabilities.mean(dim=-1)
    sums[2] = (logits_.gather(1, targets[:, None])[:, 0] == logits_.amax(dim=-1)).float()
    wanted = F.one_hot(targets, logits.shape[1]) * (1 - smoothing) + smoothing / logits.shape[1]
    logits.copy_(log_probabilities.exp() - wanted)


@pytest.fixture(params=[1 << 29, 4 * V])
def on_gpu(request, monkeypatch):
    """Stand in for a GPU, with all tokens in one block, or in blocks of 4, 4 and 1."""
    monkeypatch.setattr(fused_loss, "is_available_for", lambda x: True)
    monkeypatch.setattr(fused_loss, "to_gradients", with_pytorch)
    monkeypatch.setattr(fused_loss, "_NUMBERS", request.param)


@pytest.mark.usefixtures("on_gpu")
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("padded", [0, 4])
def test_value_and_gradients_are_pytorchs(smoothing, padded):
    features = torch.randn(3, N // 3, D, requires_grad=True)
    weight = torch.randn(V, D, requires_grad=True)
    targets = torch.randint(1, V, (3, N // 3))
    targets.view(-1)[N - padded :] = 0
    terms = LossTerms(label_smoothing=smoothing)
    ours = vocabulary_loss.blockwise_cross_entropy(
        features, weight, targets, terms, tokens=N - padded
    )
    logits, gold = (features @ weight.T).flatten(0, 1), targets.flatten()
    options = {"ignore_index": 0, "reduction": "sum"}
    wanted = F.cross_entropy(logits, gold, label_smoothing=smoothing, **options)
    torch.testing.assert_close(ours.smoothed, wanted)
    torch.testing.assert_close(ours.nll, F.cross_entropy(logits, gold, **options).detach())
    assert ours.correct == ((logits.argmax(-1) == gold) & (gold != 0)).sum()
    got, want = (torch.autograd.grad(3 * loss, (features, weight)) for loss in (ours[0], wanted))
    torch.testing.assert_close(got, want)


@pytest.mark.usefixtures("on_gpu")
def test_frozen_weights_get_no_gradient_and_products_their_type():
    features = torch.randn(2, 3, D, requires_grad=True)
    targets = torch.randint(1, V, (2, 3))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours = vocabulary_loss.blockwise_cross_entropy(
            features, torch.randn(V, D), targets, LossTerms()
        )
    ours.smoothed.backward()
    assert ours.smoothed.dtype == features.grad.dtype == torch.float32


def test_a_cpu_takes_the_loss_in_blocks_and_so_does_a_gpu_whose_triton_fails(capsys, monkeypatch):
    assert not fused_loss.is_available_for(torch.ones(2))

    def fails(*args):
        raise RuntimeError("Failed to find C compiler.\nSet CC")

    monkeypatch.setattr(fused_loss, "find_spec", lambda name: name)
    monkeypatch.setattr(fused_loss, "to_gradients", fails)
    fused_loss._works.cache_clear()
    for _ in range(2):
        assert not fused_loss._works(torch.device("cpu"))
    assert capsys.readouterr().err.count("Failed to find C compiler. Set CC") == 1
    fused_loss._works.cache_clear()


RUNS = torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1"


@pytest.mark.skipif(
    not (RUNS and importlib.util.find_spec("triton")), reason="needs a GPU or TRITON_INTERPRET=1"
)
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [13, 4096, 9001])
def test_the_kernel_computes_what_pytorch_does(kind, size):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    apart = torch.zeros(7, size + 3, dtype=kind, device=device)
    logits, twin = apart[:, :size].normal_(std=3), torch.empty(7, size, dtype=kind, device=device)
    targets = torch.randint(0, size, (7,), device=device)
    logits[2, targets[2]] = 60  # the largest
    twin.copy_(logits)
    sums, wanted = (torch.empty(3, 9, device=device)[:, 1:8] for _ in range(2))
    fused_loss.to_gradients(logits, targets, sums, 0.1)
    with_pytorch(twin, targets, wanted, 0.1)
    torch.testing.assert_close(sums, wanted, rtol=1e-5, atol=1e-4)
    exact = kind == torch.float32
    torch.testing.assert_close(logits, twin, rtol=1e-4 if exact else 1e-2, atol=1e-6)
    assert not apart[:, size:].any()
