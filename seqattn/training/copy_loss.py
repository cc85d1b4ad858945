"""Cross-entropy of a model that generates and copies, summed over real tokens."""

from typing import Any

import torch
from torch import Tensor, nn

from seqattn.models.copying import Mixture, gain
from seqattn.training.loss import OutputBlocks, TokenLoss


def copying_cross_entropy(
    features: Tensor,
    output: nn.Linear,
    mixture: Mixture,
    targets: Tensor,
    smoothing: float,
    pad: int = 0,
) -> TokenLoss:
    """The same as `cross_entropy(mixed(output(features), mixture), ...)`, a block at a time.

    As `output_cross_entropy`, to which it adds what copying gives to the source's tokens: so of
    the vocabulary's V numbers a block alone is in memory. Label smoothing is exact: it spreads over
    the mixture's V probabilities. Only `smoothed` is differentiable.

    Args:
        features: (B, T, D).
        output: the layer to the vocabulary V.
        mixture: of the same tokens.
        targets: (B, T) ids.
        smoothing: as `cross_entropy`.
        pad: the padding id.
    """
    real = targets != pad
    rows = mixture.rows(real)
    smoothed, nll, correct = _CopyingCrossEntropy.apply(  # type: ignore[no-untyped-call]
        features[real],
        output.weight,
        output.bias,
        *rows,
        targets[real],
        smoothing,
        torch.is_grad_enabled(),
    )
    return TokenLoss(smoothed, nll.detach(), correct, real.sum())


class _CopyingCrossEntropy(torch.autograd.Function):
    """-sum_w t_w log P(w), t the smoothed target and P(w) = e^generate q_w + copied_w.

    With s_w the vocabulary's share of P(w), which is 1 for what is not in the source, the gradient
    at logit v is q_v sum_w t_w s_w - t_v s_v.
    """

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        generate: Tensor,
        copy: Tensor,
        ids: Tensor,
        targets: Tensor,
        smoothing: float,
        needs_gradient: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        blocks = OutputBlocks(features, weight, bias, needs_gradient)
        sums = torch.zeros(3, dtype=blocks.accumulate, device=features.device)
        size = weight.shape[0]
        lost = torch.zeros_like(copy)
        for block, logits in blocks:
            gold, places = targets[block, None], ids[block]
            probabilities = logits.softmax(dim=-1)
            peak = logits.amax(dim=-1, keepdim=True)
            norm = peak - probabilities.amax(dim=-1, keepdim=True).log() - generate[block, None]
            more = gain(logits.gather(1, places) - norm, copy[block])
            logits.scatter_add_(1, places, more)  # log P(w) is now logit - norm
            gold_logit, mean = logits.gather(1, gold), logits.mean(dim=-1, keepdim=True)
            right = gold_logit == logits.amax(dim=-1, keepdim=True)
            sums += torch.stack([(norm - gold_logit).sum(), (norm - mean).sum(), right.sum()])
            if not needs_gradient:
                continue
            said = (places == gold).to(more.dtype)
            wanted = said * (1 - smoothing) + smoothing / size  # t_w
            lost[block] = -torch.expm1(-more) * wanted  # t_w (1 - s_w)
            gradient = probabilities.mul_(1 - lost[block].sum(dim=1, keepdim=True))
            if smoothing:
                gradient.sub_(smoothing / size)
            gradient.scatter_add_(1, gold, gradient.new_full((), smoothing - 1).expand_as(gold))
            gradient.scatter_add_(1, places, lost[block])
            blocks.learn(block, gradient)
        nll, spread, correct = sums.unbind()
        ctx.blocks, ctx.lost = blocks, lost
        ctx.mark_non_differentiable(correct)
        return (1 - smoothing) * nll + smoothing * spread, nll.clone(), correct

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        scale = gradients[0]
        kept = 1 - ctx.lost.sum(dim=1)
        rest = (None,) * 4
        return (*ctx.blocks.gradients(scale), -kept * scale, -ctx.lost * scale, *rest)
