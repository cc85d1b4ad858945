"""Attention on a GPU, for which the meta device stands: groups and plans."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from seqattn import ops
from seqattn.generation.base import inference
from seqattn.ops.gpu import for_all_heads, reads_rows, row_bounds, rowwise_attention

HALF = torch.bfloat16


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    ("kind", "masked", "heads"), [(HALF, False, None), (HALF, True, 6), (torch.float32, False, 6)]
)
def test_heads_that_share_keys_get_their_own_where_fused_kernels_know_no_groups(
    monkeypatch, groups, kind, masked, heads
):
    calls = []

    def attend(q, keys, values, **options):
        calls.append((keys.shape[1], values.shape[1], options["enable_gqa"]))
        return q

    monkeypatch.setattr(F, "scaled_dot_product_attention", attend)
    q = torch.empty(2, 6, 5, 8, dtype=kind, device="meta")
    keys = values = torch.empty(2, groups, 7, 8, dtype=kind, device="meta")
    bias = torch.empty(2, 1, 1, 7, dtype=torch.bool, device="meta") if masked else None
    ops.attention(q, keys, values, bias, False, 0.0, 1.0)
    assert calls == [(heads or groups, heads or groups, heads is None)]


class Sizes(TorchDispatchMode):
    """Records the number of elements of each tensor that an operation returns."""

    def __init__(self):
        super().__init__()
        self.sizes = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        self.sizes.append(made.numel())
        return made


@torch.no_grad()
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("mask", [(3, 1, 1, 40), (1, 1, 2, 40), (3, 6, 2, 40)], ids=str)
def test_a_masked_step_in_half_precision_reads_shared_keys_in_place(groups, rows, mask):
    q = torch.empty(3, 6, rows, 16, dtype=HALF, device="meta")
    keys = values = torch.empty(3, groups, 40, 16, dtype=HALF, device="meta")
    bias = torch.empty(*mask, dtype=torch.bool, device="meta")[..., :rows, :]
    with Sizes() as made:
        context = ops.attention(q, keys, values, bias, False, 0.0, 0.3)
    assert context.shape == q.shape
    assert max(made.sizes) <= keys.numel()


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_keys_for_all_heads_are_those_of_their_groups(groups):
    q = torch.randn(2, 6, 5, 4, dtype=torch.float64)
    keys, values = torch.randn(2, 2, groups, 7, 4, dtype=torch.float64).unbind()
    each = (for_all_heads(part, 6) for part in (keys, values))
    torch.testing.assert_close(
        F.scaled_dot_product_attention(q, *each),
        F.scaled_dot_product_attention(q, keys, values, enable_gqa=True),
    )


def test_decoding_leaves_out_the_attention_that_plans_each_shape():
    before = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        for allowed in (True, False):
            torch.backends.cuda.enable_cudnn_sdp(allowed)
            with inference(torch.nn.Linear(2, 3)):
                assert not torch.backends.cuda.cudnn_sdp_enabled()
            assert torch.backends.cuda.cudnn_sdp_enabled() == allowed
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("queries", [7, 600])
def test_rows_laid_end_to_end_give_the_outputs_and_gradients_of_a_mask(groups, queries):
    real = (torch.arange(600) < torch.tensor([[600], [599], [3]])).cuda()
    shapes = (3, 4, queries, 16), (3, groups, 600, 16), (3, groups, 600, 16)
    parts = [torch.randn(*shape, device="cuda", dtype=HALF, requires_grad=True) for shape in shapes]
    assert reads_rows(parts[0], 0.0)

    def results(context):
        return [context, *torch.autograd.grad(context.float().square().sum(), parts)]

    found = results(rowwise_attention(*parts, row_bounds(real), 0.3))
    wanted = results(ops.attention(*parts, real[:, None, None], False, 0.0, 0.3))
    for own, other in zip(found, wanted):
        assert (own - other).norm() < 0.02 * other.norm()
