"""Every fused attention with every position gives the same by tiles as by PyTorch's."""

from dataclasses import replace

import pytest
import torch

from seqattn import ops
from seqattn.attention.kernels.linformer import LinformerKernel
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.ops.cpu import flash_attention
from tests.attention.test_conformance import T, attend, built, masks_of, positions, with_schemes
from tests.builders import DIM, attention_variants
from tests.tolerance import close

REAL = torch.arange(T) < torch.tensor([T, 3])[:, None]


def fused(name):
    """Whether an attention computes in a way that there are tiles for."""
    kernel = getattr(built(name), "kernel", None)
    return isinstance(kernel, LinformerKernel) or (
        isinstance(kernel, SoftmaxKernel) and not kernel.written_out
    )


@pytest.mark.parametrize(("name", "names"), with_schemes(filter(fused, attention_variants())))
def test_tiles_give_what_pytorchs_attention_gives(monkeypatch, name, names):
    attention = built(name)
    monkeypatch.setattr(ops, "longest", lambda *_: 0)
    for part, value in {"_ROWS": 2, "_KEYS": 3, "_SCORES": 1}.items():
        monkeypatch.setattr(flash_attention, part, value)
    for _, position in positions(names):
        padded = masks_of(name, REAL)
        for mask in [*padded, *(replace(mask, real=None, real_queries=None) for mask in padded)]:
            monkeypatch.setattr(ops, "tiles_are_quicker", lambda kind, keys: False)
            wanted = outputs_and_gradients(attention, mask, position)
            monkeypatch.setattr(ops, "tiles_are_quicker", lambda kind, keys: True)
            found = outputs_and_gradients(attention, mask, position)
            for one, other in zip(found, wanted, strict=True):
                close(one, other, 1e-4)


def outputs_and_gradients(attention, mask, position):
    torch.manual_seed(2)  # of what lsh draws, too
    x = torch.randn(*REAL.shape, DIM, requires_grad=True)
    out = attend(attention, x, x, mask, position)[REAL]
    learned = [x, *attention.parameters(), *position.parameters()]
    gradients = torch.autograd.grad(out.square().mean(), learned, allow_unused=True)
    return out, *(one for one in gradients if one is not None)
