"""Cross-entropy over a vocabulary, summed over real tokens, with and without copying."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqattn.tokens import PAD

_BLOCK_NUMBERS = 1 << 21  # logits of a block: 8 MiB in float32, which a CPU's caches hold


class TokenLoss(NamedTuple):
    """Sums over the real tokens of a batch.

    `smoothed` is what training minimises, `nll` the plain negative log-likelihood, both in nats;
    `correct` counts tokens that were the likeliest, `tokens` all of them.
    """

    smoothed: Tensor
    nll: Tensor
    correct: Tensor
    tokens: Tensor


class Mixture(NamedTuple):
    """How generating and copying share a token's probability; all in nats, in float32 at least."""

    generate: Tensor
    """(B*K, T) log-probability of generating from the vocabulary."""
    copy: Tensor
    """(B*K, T, S) log-probability of copying the token at a place: of all of its places together
    at its first, -inf at the others."""
    ids: Tensor
    """(B*K, T, S) the source's tokens."""

    def log_probabilities(self, logits: Tensor) -> Tensor:
        """Of every token, (B*K, T, V), where logits (B*K, T, V) are the vocabulary's."""
        wide = torch.promote_types(logits.dtype, torch.float32)
        scores = logits.log_softmax(dim=-1, dtype=wide) + self.generate[..., None]
        more = _gain(scores.gather(-1, self.ids), self.copy)
        return scores.scatter_add(-1, self.ids, more)


def _gain(generated: Tensor, copied: Tensor) -> Tensor:
    """How much a token's log-probability rises by being copied too: log(1 + copied / generated)."""
    return torch.logaddexp(torch.zeros_like(generated), copied - generated)


def cross_entropy(logits: Tensor, targets: Tensor, smoothing: float, pad: int = PAD) -> TokenLoss:
    """Label-smoothed cross-entropy (Szegedy et al. 2016, arXiv 1512.00567, section 7).

    Args:
        logits: (..., V), or log-probabilities.
        targets: (...) ids; positions that hold `pad` count for nothing.
        smoothing: share of the target's probability spread over the whole vocabulary.
        pad: the padding id.
    """
    real = targets != pad
    wide = torch.promote_types(logits.dtype, torch.float32)
    log_probabilities = logits[real].log_softmax(dim=-1, dtype=wide)  # (N, V)
    gold = targets[real]
    nll = -log_probabilities.gather(1, gold[:, None]).sum()
    spread = -log_probabilities.mean(dim=-1).sum()
    smoothed = (1 - smoothing) * nll + smoothing * spread if smoothing else nll
    correct = (log_probabilities.argmax(dim=-1) == gold).sum()
    return TokenLoss(smoothed, nll, correct, real.sum())


def blockwise_cross_entropy(
    features: Tensor,
    output: nn.Linear,
    targets: Tensor,
    smoothing: float,
    mixture: Mixture | None = None,
) -> TokenLoss:
    """The same as `cross_entropy(output(features), ...)`, without all logits at once.

    With a mixture, as `cross_entropy(mixture.log_probabilities(output(features)), ...)`. Real
    tokens alone reach the vocabulary, a block at a time, and each block's gradient is made while
    its logits are at hand (the idea of Liger Kernel, Hsu et al. 2024, arXiv 2410.10989), so memory
    is a block's. Only `smoothed` is differentiable. Under autocast matrix products run in the
    autocast type, and sums in float32.

    Args:
        features: (B, T, D).
        output: the layer to the vocabulary V.
        targets: (B, T) ids, 0 where padded.
        smoothing: as `cross_entropy`.
        mixture: of the same tokens, where they may be copied.
    """
    real = targets != PAD
    parts = (None,) * 3 if mixture is None else [part[real] for part in mixture]
    smoothed, nll, correct = _BlockwiseCrossEntropy.apply(  # type: ignore[no-untyped-call]
        features[real], output.weight, output.bias, *parts,
        targets[real], smoothing, torch.is_grad_enabled(),
    )  # fmt: skip
    return TokenLoss(smoothed, nll.detach(), correct, real.sum())


class _Blocks:
    """An output layer gone through a block of tokens at a time, and the gradients that it gathers.

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
        self.accumulate = torch.promote_types(weight.dtype, torch.float32)
        self.x, self.w = features.to(self.compute), weight.to(self.compute)
        self.b = None if bias is None else bias.to(self.compute)
        self.dtype = weight.dtype
        if needs_gradient:
            self.x_gradient = torch.empty_like(features)
            self.w_gradient = torch.zeros_like(weight, dtype=self.accumulate)
            self.b_gradient = torch.zeros_like(weight[:, 0], dtype=self.accumulate)

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
        part, narrow = self.x[block], gradient.to(self.compute)
        self.x_gradient[block] = (narrow @ self.w).to(self.x_gradient.dtype)
        if self.compute == self.accumulate:
            self.w_gradient.addmm_(narrow.T, part)
        else:
            self.w_gradient += narrow.T @ part
        if self.b is not None:
            self.b_gradient += gradient.sum(dim=0)

    def gradients(self, scale: Tensor) -> tuple[Tensor | None, ...]:
        """Those of features, weight and bias, times `scale`."""
        return (
            self.x_gradient * scale.to(self.x_gradient.dtype),
            (self.w_gradient * scale).to(self.dtype),
            None if self.b is None else (self.b_gradient * scale).to(self.dtype),
        )


class _BlockwiseCrossEntropy(torch.autograd.Function):
    """-sum_w t_w log P(w), t the smoothed target and P(w) = e^generate q_w + copied_w.

    With s_w the vocabulary's share of P(w), which is 1 for what is not copied, the gradient at
    logit v is q_v sum_w t_w s_w - t_v s_v.
    """

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        generate: Tensor | None,
        copy: Tensor | None,
        ids: Tensor | None,
        targets: Tensor,
        smoothing: float,
        needs_gradient: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        blocks = _Blocks(features, weight, bias, needs_gradient)
        sums = torch.zeros(3, dtype=blocks.accumulate, device=features.device)
        size = weight.shape[0]
        mixture = lost = None
        if generate is not None and copy is not None and ids is not None:
            mixture, lost = Mixture(generate, copy, ids), torch.zeros_like(copy)
        for block, logits in blocks:
            gold = targets[block, None]
            peak = logits.amax(dim=-1, keepdim=True)
            probabilities = logits.softmax(dim=-1)
            # log-sum-exp from the likeliest token's probability, which saves a pass of exp
            norm = peak - probabilities.amax(dim=-1, keepdim=True).log()
            if mixture is not None and lost is not None:
                rows = Mixture(*(part[block] for part in mixture))
                norm = norm - rows.generate[:, None]
                more = _gain(logits.gather(1, rows.ids) - norm, rows.copy)
                logits.scatter_add_(1, rows.ids, more)  # log P(w) is logit - norm from here
                peak = logits.amax(dim=-1, keepdim=True)
                wanted = (rows.ids == gold).to(more.dtype) * (1 - smoothing) + smoothing / size
                lost[block] = -torch.expm1(-more) * wanted  # t_w (1 - s_w)
            gold_logit, mean = logits.gather(1, gold), logits.mean(dim=-1, keepdim=True)
            right = gold_logit == peak
            sums += torch.stack([(norm - gold_logit).sum(), (norm - mean).sum(), right.sum()])
            if not needs_gradient:
                continue
            gradient = probabilities
            if lost is not None:
                gradient.mul_(1 - lost[block].sum(dim=1, keepdim=True))
                gradient.scatter_add_(1, rows.ids, lost[block])
            if smoothing:
                gradient.sub_(smoothing / size)
            gradient.scatter_add_(1, gold, gradient.new_full((), smoothing - 1).expand_as(gold))
            blocks.learn(block, gradient)
        nll, spread, correct = sums.unbind()
        ctx.blocks, ctx.lost = blocks, lost
        ctx.mark_non_differentiable(correct)
        return (1 - smoothing) * nll + smoothing * spread, nll.clone(), correct

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        scale, shares = gradients[0], (None, None)
        if ctx.lost is not None:
            shares = (-(1 - ctx.lost.sum(dim=1)) * scale, -ctx.lost * scale)
        return (*ctx.blocks.gradients(scale), *shares, None, None, None, None)
