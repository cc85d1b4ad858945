"""Cross-entropy over a vocabulary, summed over real tokens."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class TokenLoss(NamedTuple):
    """Sums over the real tokens of a batch.

    `smoothed` is what training minimises, `nll` the plain negative log-likelihood, both in nats
    and differentiable; `correct` counts tokens that were the likeliest, `tokens` all of them.
    """

    smoothed: Tensor
    nll: Tensor
    correct: Tensor
    tokens: Tensor


def cross_entropy(logits: Tensor, targets: Tensor, smoothing: float, pad: int = 0) -> TokenLoss:
    """Label-smoothed cross-entropy (Szegedy et al. 2016, arXiv 1512.00567, section 7).

    Args:
        logits: (..., V), or log-probabilities.
        targets: (...) ids; positions that hold `pad` count for nothing.
        smoothing: share of the target's probability spread over the whole vocabulary.
        pad: the padding id.
    """
    real = targets != pad
    log_probabilities = logits[real].log_softmax(dim=-1, dtype=_wide(logits))  # (N, V)
    gold = targets[real]
    nll = -log_probabilities.gather(1, gold[:, None]).sum()
    smoothed = nll
    if smoothing:
        spread = -log_probabilities.mean(dim=-1).sum()
        smoothed = (1 - smoothing) * nll + smoothing * spread
    correct = (log_probabilities.argmax(dim=-1) == gold).sum()
    return TokenLoss(smoothed, nll, correct, real.sum())


def output_cross_entropy(
    features: Tensor, output: nn.Linear, targets: Tensor, smoothing: float, pad: int = 0
) -> TokenLoss:
    """The same as `cross_entropy(output(features), ...)`, without all logits at once.

    Real tokens alone reach the vocabulary, a block at a time, and each block's gradient is made
    while its logits are at hand (the idea of Liger Kernel, Hsu et al. 2024, arXiv 2410.10989). So
    memory is a block's, not the batch's, and each logit is read from cache. Only `smoothed` is
    differentiable. Under autocast, and on a GPU in reduced precision, matrix products run in the
    autocast type and sums in float32.

    Args:
        features: (B, T, D).
        output: the layer to the vocabulary V.
        targets: (B, T) ids.
        smoothing: as `cross_entropy`.
        pad: the padding id.
    """
    real = targets != pad
    chosen = features[real]  # (B, T, D) -> (N, D)
    needs = torch.is_grad_enabled()
    smoothed, nll, correct = _OutputCrossEntropy.apply(  # type: ignore[no-untyped-call]
        chosen, output.weight, output.bias, targets[real], smoothing, needs
    )
    return TokenLoss(smoothed, nll.detach(), correct, real.sum())


def _wide(x: Tensor) -> torch.dtype:
    """The type to sum in: float32, or float64 where `x` has it."""
    return torch.promote_types(x.dtype, torch.float32)


_BLOCK_NUMBERS = 1 << 21  # logits of a block: 8 MiB in float32, which a CPU's caches hold


class _OutputCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        needs_gradient: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        device = features.device.type
        compute = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        compute = compute or features.dtype
        x, w = features.to(compute), weight.to(compute)
        accumulate = _wide(weight)
        x_gradient = torch.empty_like(features) if needs_gradient else None
        w_gradient = torch.zeros_like(weight, dtype=accumulate) if needs_gradient else None
        b_gradient = None
        if needs_gradient and bias is not None:
            b_gradient = torch.zeros_like(bias, dtype=accumulate)
        sums = torch.zeros(3, dtype=accumulate, device=features.device)
        size = weight.shape[0]
        rows = max(64, _BLOCK_NUMBERS // size)
        for start in range(0, x.shape[0], rows):
            block = slice(start, start + rows)
            part, gold = x[block], targets[block, None]
            logits = part @ w.T if bias is None else torch.addmm(bias.to(compute), part, w.T)
            logits = logits.to(accumulate)
            gold_logit, mean = logits.gather(1, gold), logits.mean(dim=-1, keepdim=True)
            peak = logits.amax(dim=-1, keepdim=True)
            probabilities = logits.softmax(dim=-1)
            # log-sum-exp from the likeliest token's probability, which saves a pass of exp
            norm = peak - probabilities.amax(dim=-1, keepdim=True).log()
            sums += torch.stack(
                [(norm - gold_logit).sum(), (norm - mean).sum(), (gold_logit == peak).sum()]
            )
            if x_gradient is None or w_gradient is None:
                continue
            gradient = probabilities
            if smoothing:
                gradient.sub_(smoothing / size)
            gradient.scatter_add_(1, gold, gradient.new_full((), smoothing - 1).expand_as(gold))
            narrow = gradient.to(compute)
            x_gradient[block] = (narrow @ w).to(x_gradient.dtype)
            if compute == accumulate:
                w_gradient.addmm_(narrow.T, part)
            else:
                w_gradient += narrow.T @ part
            if b_gradient is not None:
                b_gradient += gradient.sum(dim=0)
        nll, spread, correct = sums.unbind()
        ctx.gradients = (x_gradient, w_gradient, b_gradient)
        ctx.dtypes = (weight.dtype, None if bias is None else bias.dtype)
        smoothed = (1 - smoothing) * nll + smoothing * spread
        ctx.mark_non_differentiable(correct)
        return smoothed, nll.clone(), correct

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        scale = gradients[0]
        x, w, b = ctx.gradients
        weight_type, bias_type = ctx.dtypes
        return (
            x * scale.to(x.dtype),
            (w * scale).to(weight_type),
            None if b is None else (b * scale).to(bias_type),
            None,
            None,
            None,
        )
