"""The Triton kernel of `fused_loss`; imported only where it is used."""
# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: ANN001, ANN201

import triton
import triton.language as tl

BLOCK = 4096
"""Logits that one program reads at once."""


@triton.jit
def logits_to_gradients(
    logits,
    targets,
    sums,
    size,
    stride,
    sums_stride,
    smoothing,
    share,
    BLOCK: tl.constexpr,
):
    """Compute `fused_loss.to_gradients` of one row; `share` is smoothing / size."""
    row = tl.program_id(0)
    gold = tl.load(targets + row)
    first = logits + row.to(tl.int64) * stride
    gold_logit = tl.load(first + gold).to(tl.float32)
    offsets = tl.arange(0, BLOCK)
    best = -float("inf")  # largest logit so far
    total = 0.0  # sum of exp(logit - best)
    every = 0.0  # sum of the logits
    for start in range(0, size, BLOCK):
        inside = start + offsets < size
        x = tl.load(first + start + offsets, mask=inside, other=-float("inf")).to(tl.float32)
        larger = tl.maximum(best, tl.max(x, 0))
        total = total * tl.exp(best - larger) + tl.sum(tl.exp(x - larger), 0)
        every += tl.sum(tl.where(inside, x, 0.0), 0)
        best = larger
    norm = best + tl.log(total)
    tl.store(sums + row, norm - gold_logit)
    tl.store(sums + sums_stride + row, norm - every / size)
    tl.store(sums + 2 * sums_stride + row, (gold_logit == best).to(tl.float32))
    for start in range(0, size, BLOCK):
        inside = start + offsets < size
        x = tl.load(first + start + offsets, mask=inside, other=0.0).to(tl.float32)
        gradient = tl.exp(x - norm) - share
        gradient = tl.where(start + offsets == gold, gradient - (1 - smoothing), gradient)
        tl.store(first + start + offsets, gradient.to(logits.dtype.element_ty), mask=inside)
