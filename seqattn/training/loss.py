"""Cross-entropy over a vocabulary, summed over real tokens."""

from collections.abc import Iterator
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


class OutputBlocks:
    """An output layer gone through a block of tokens at a time, and the gradients that it gathers.

    Under autocast matrix products run in the autocast type, logits and sums are in float32.

    Args:
        features: (N, D).
        weight: (V, D).
        bias: (V,), or None.
        needs_gradient: whether `learn` will be called for every block.
    """

    def __init__(
        self, features: Tensor, weight: Tensor, bias: Tensor | None, needs_gradient: bool
    ) -> None:
        device = features.device.type
        compute = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        self.compute = compute or features.dtype
        self.accumulate = _wide(weight)
        self.x, self.w = features.to(self.compute), weight.to(self.compute)
        self.b = None if bias is None else bias.to(self.compute)
        self.needs_gradient = needs_gradient
        self.x_gradient = torch.empty_like(features) if needs_gradient else None
        self.w_gradient = None
        self.b_gradient = None
        if needs_gradient:
            self.w_gradient = torch.zeros_like(weight, dtype=self.accumulate)
            if bias is not None:
                self.b_gradient = torch.zeros_like(bias, dtype=self.accumulate)
        self.dtypes = (weight.dtype, None if bias is None else bias.dtype)

    def __iter__(self) -> Iterator[tuple[slice, Tensor]]:
        """Rows and their logits (n, V), block by block."""
        rows = max(64, _BLOCK_NUMBERS // self.w.shape[0])
        for start in range(0, self.x.shape[0], rows):
            block = slice(start, start + rows)
            part = self.x[block]
            logits = part @ self.w.T if self.b is None else torch.addmm(self.b, part, self.w.T)
            yield block, logits.to(self.accumulate)

    def learn(self, block: slice, gradient: Tensor) -> None:
        """Takes the gradient (n, V) of a block's logits."""
        assert self.x_gradient is not None
        assert self.w_gradient is not None
        part, narrow = self.x[block], gradient.to(self.compute)
        self.x_gradient[block] = (narrow @ self.w).to(self.x_gradient.dtype)
        if self.compute == self.accumulate:
            self.w_gradient.addmm_(narrow.T, part)
        else:
            self.w_gradient += narrow.T @ part
        if self.b_gradient is not None:
            self.b_gradient += gradient.sum(dim=0)

    def gradients(self, scale: Tensor) -> tuple[Tensor | None, ...]:
        """Those of features, weight and bias, times `scale`."""
        assert self.x_gradient is not None
        assert self.w_gradient is not None
        weight_type, bias_type = self.dtypes
        b = self.b_gradient
        return (
            self.x_gradient * scale.to(self.x_gradient.dtype),
            (self.w_gradient * scale).to(weight_type),
            None if b is None else (b * scale).to(bias_type),
        )


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
        blocks = OutputBlocks(features, weight, bias, needs_gradient)
        sums = torch.zeros(3, dtype=blocks.accumulate, device=features.device)
        size = weight.shape[0]
        for block, logits in blocks:
            gold = targets[block, None]
            gold_logit, mean = logits.gather(1, gold), logits.mean(dim=-1, keepdim=True)
            peak = logits.amax(dim=-1, keepdim=True)
            probabilities = logits.softmax(dim=-1)
            # log-sum-exp from the likeliest token's probability, which saves a pass of exp
            norm = peak - probabilities.amax(dim=-1, keepdim=True).log()
            sums += torch.stack(
                [(norm - gold_logit).sum(), (norm - mean).sum(), (gold_logit == peak).sum()]
            )
            if not needs_gradient:
                continue
            gradient = probabilities
            if smoothing:
                gradient.sub_(smoothing / size)
            gradient.scatter_add_(1, gold, gradient.new_full((), smoothing - 1).expand_as(gold))
            blocks.learn(block, gradient)
        nll, spread, correct = sums.unbind()
        ctx.blocks = blocks
        smoothed = (1 - smoothing) * nll + smoothing * spread
        ctx.mark_non_differentiable(correct)
        return smoothed, nll.clone(), correct

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return (*ctx.blocks.gradients(gradients[0]), None, None, None)
