"""Fast `ops.cross_entropy` of features, without materializing the logits of all tokens."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqattn.ops import at_hand, exp_
from seqattn.ops.cpu import onednn
from seqattn.ops.cross_entropy import LossTerms, Mixture, TokenLoss, gain
from seqattn.ops.gpu import fused_loss
from seqattn.ops.memory import block_numbers
from seqattn.ops.second_derivatives import forbid_second_derivatives
from seqattn.tokens import PAD

_BLOCK_NUMBERS = 1 << 21  # logits of a block on a CPU: 8 MiB in float32, to fit the caches
_LEAST_ROWS = 256  # of a block: with fewer, the products are slower even if they fit the caches
_NARROW_ROWS = 32
"""Rows of a block are a multiple of this: in half precision a CPU takes a millisecond or more to
prepare each new product shape. Even, so that the two passes of a token stay together."""


def blockwise_cross_entropy(
    features: Tensor,
    weight: Tensor,
    targets: Tensor,
    terms: LossTerms,
    mixture: Mixture | None = None,
    tokens: int | None = None,
    softcap: float | None = None,
) -> TokenLoss:
    """Compute `cross_entropy(features @ weight.T, ...)` in blocks of tokens.

    With a mixture, `cross_entropy(mixture.log_probabilities(features @ weight.T), ...)`. Only real
    tokens are projected to the vocabulary, a block at a time, and each block's gradient is computed
    together with its logits (as in Liger Kernel, Hsu et al. 2024, arXiv 2410.10989), so memory is
    that of one block. Only `smoothed` is differentiable. Under autocast matrix products run in the
    autocast type, and sums in float32.

    With `r_drop`, a = alpha, the second half of the batch is another pass over the first half's
    rows, and `smoothed` includes a/2 (KL(P1 || P2) + KL(P2 || P1)) of each token's two
    distributions. It is thus the loss of R-Drop (Liang et al. 2021, arXiv 2106.14448, eq. 4),
    which sums both cross-entropies, with the same alpha. With `simcut`, the second half is the pass
    with embeddings cut: only the divergence alpha KL(P1 || P2) depends on it.

    Args:
        features: (B, T, D).
        weight: (V, D) of the output layer.
        targets: (B, T) ids, 0 where padded.
        terms: terms of the loss.
        mixture: of the same tokens, if they may be copied; else None.
        tokens: number of real targets; None if unknown, which makes a GPU synchronize.
        softcap: c of logits c tanh(x / c); None for x.
    """
    real, smoothing, pairs = targets != PAD, terms.label_smoothing, terms.divergence_weight
    rows = None if tokens == targets.numel() and not pairs else _real_rows(real, tokens)
    if pairs and rows is not None:  # put both passes of a token next to each other
        rows = tuple(torch.stack(part.chunk(2), dim=1).flatten() for part in rows)
    inputs = [features, weight, *([] if mixture is None else mixture[:2])]
    learn, is_plain = torch.is_grad_enabled(), mixture is None and softcap is None and not pairs
    with torch.no_grad(), onednn.quick_products():
        x, gold = _selected(features, rows), _selected(targets, rows)
        if mixture is not None:
            mixture = Mixture(*(_selected(part, rows) for part in mixture))
        if learn and is_plain and fused_loss.is_available_for(x):
            kind = _product_type(x)
            sums, gradients = fused_loss.smoothed_cross_entropy(x, weight, gold, smoothing, kind)
        else:
            sums, gradients = _over_blocks(x, weight, gold, terms, mixture, learn, softcap)
        gradients = [
            gradient if of is weight or gradient is None else _spread(gradient, rows, of)
            for gradient, of in zip(gradients, inputs)
        ]
    nll, spread, correct, divergence = sums.unbind()
    smoothed = (1 - smoothing) * nll + smoothing * spread
    if pairs:
        smoothed = smoothed + pairs * divergence
    if learn:
        smoothed = _PrecomputedGradients.apply(smoothed, gradients, *inputs)  # type: ignore[no-untyped-call]
    scored = real.chunk(2)[0] if terms.simcut else real
    return TokenLoss(smoothed, nll, correct, scored.sum(), divergence)


def _real_rows(real: Tensor, tokens: int | None) -> tuple[Tensor, ...]:
    """Return the places of real tokens (B, T) as two index tensors (N,)."""
    if tokens is None or real.device.type == "cpu" or torch.compiler.is_compiling():
        return real.nonzero(as_tuple=True)
    return nonzero_indices(real, tokens)


def nonzero_indices(real: Tensor, tokens: int) -> tuple[Tensor, ...]:
    """Return `real.nonzero(as_tuple=True)` for real (B, T) without synchronizing a GPU.

    Args:
        tokens: number of True values.
    """
    order = (~real).flatten().byte().argsort(stable=True)[:tokens]
    return order // real.shape[1], order % real.shape[1]


def _selected(x: Tensor, rows: tuple[Tensor, ...] | None) -> Tensor:
    """Return the real tokens (N, ...) of x (B, T, ...), which are all if `rows` is None."""
    return x.flatten(0, 1) if rows is None else x[rows]


def _spread(gradient: Tensor, rows: tuple[Tensor, ...] | None, like: Tensor) -> Tensor:
    """Return the gradient (B, T, ...) of x from that of `_selected(x, rows)`.

    Autograd would sort the rows on a GPU, as they might repeat.
    """
    if rows is None:
        return gradient.view(like.shape)
    spread = gradient.new_zeros(like.shape)
    spread[rows] = gradient
    return spread


def _product_type(x: Tensor) -> torch.dtype:
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


class _PrecomputedGradients(torch.autograd.Function):
    """A scalar whose gradients are already computed."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: list[Tensor | None], *inputs: Tensor) -> Tensor:
        ctx.gradients, ctx.dtypes = gradients, [x.dtype for x in inputs]
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *scales: Tensor) -> tuple[Tensor | None, ...]:
        forbid_second_derivatives(
            "this loss does not support second derivatives; use ops.cross_entropy of the logits"
        )
        pairs = zip(ctx.gradients, ctx.dtypes, strict=True)
        scaled = (None if part is None else (part * scales[0]).to(dtype) for part, dtype in pairs)
        return None, None, *scaled


def _over_blocks(
    x: Tensor,
    weight: Tensor,
    targets: Tensor,
    terms: LossTerms,
    mixture: Mixture | None,
    learn: bool,
    softcap: float | None,
) -> tuple[Tensor, list[Tensor | None]]:
    """Return sums (nll, spread, correct, divergence) over tokens (N, D), and if `learn` the
    gradients of the inputs, None for a frozen weight's."""
    smoothing, pairs, compute = terms.label_smoothing, terms.divergence_weight, _product_type(x)
    kind = torch.promote_types(weight.dtype, torch.float32)
    output = weight.to(compute)
    narrow = x.to(compute) if compute == kind else _padded(x, compute)
    sums = torch.zeros(4, dtype=kind, device=x.device)
    of_x, of_weight = torch.empty_like(x if learn else x[:0]), None
    if learn and weight.requires_grad:  # transposed at the end, for a faster product
        of_weight = weight.new_zeros(weight.T.shape, dtype=kind)
    lost = None if mixture is None else torch.zeros_like(mixture.copy)
    pull = sums.new_zeros(len(x), 1)
    scored = pull + 1  # weight of each token's cross-entropy
    if terms.simcut:
        scored[1::2] = 0
    limit = block_numbers(x, _BLOCK_NUMBERS) // len(weight) // _NARROW_ROWS * _NARROW_ROWS
    rows = max(_LEAST_ROWS, limit)
    memory = narrow.new_empty(min(rows, len(narrow)), len(weight))  # every block's logits
    for start in range(0, len(x), rows):
        block = slice(start, min(start + rows, len(x)))
        features, gold = narrow[start : start + rows], targets[block, None]
        product = torch.mm(features, output.T, out=memory[: len(features)])
        logits = product[: len(gold)].to(kind)
        slope = None  # of the capped logits
        if softcap is not None:
            slope = 1 - logits.div_(softcap).tanh_().square()
            of_logits = logits.mul_(softcap).sum(dim=1)
            sums[1] -= torch.dot(of_logits, scored[block, 0]) / len(weight)
        part = None if mixture is None else Mixture(*(field[block] for field in mixture))
        first = None if learn else logits.argmax(dim=-1, keepdim=True)
        parts = _block(logits, gold, scored[block], terms, part, first)
        sums += parts.sums
        if not learn:
            continue
        if parts.apart is not None:
            pull[block] = pairs * parts.apart.sum(dim=1, keepdim=True)
        # the logits' gradient times each row's total; the smaller factor of the product is
        # divided by it instead
        gradient, total = parts.exponentials, parts.total
        if compute == torch.float16:  # a total may overflow
            gradient, total = gradient.div_(total), torch.ones_like(total)
        if lost is not None and part is not None and parts.copied is not None:
            lost[block] = parts.copied
            weights_left = scored[block] - pull[block]
            gradient.mul_(weights_left - parts.copied.sum(dim=1, keepdim=True))
            gradient.scatter_add_(1, part.ids, parts.copied * total)
        elif pairs:
            gradient.mul_(scored[block] - pull[block])
        if parts.apart is not None:
            gradient.addcmul_(parts.apart, total, value=pairs)
        gradient.scatter_add_(1, gold, total * (smoothing - 1) * scored[block])
        if slope is not None:
            gradient.sub_(total * (smoothing / len(weight)) * scored[block]).mul_(slope)
        if compute != kind:
            product[: len(gold)] = gradient
            product[len(gold) :] = 0
            gradient = product
        of_x[block] = (gradient @ output)[: len(gold)] / total
        if of_weight is None:
            continue
        scaled = torch.zeros_like(features)
        scaled[: len(gold)] = x[block] / total
        transposed = scaled.T.contiguous()
        if compute == kind and not (at_hand(x) and onednn.is_quicker()):
            of_weight.addmm_(transposed, gradient)
        else:  # oneDNN's accumulating product is slower than a separate addition
            of_weight += transposed @ gradient
    # the smoothed target gives every token the same share, so its term needs no uncapped logits
    features_sum = (x[::2] if terms.simcut else x).sum(dim=0, dtype=kind)
    weight_sum = weight.sum(dim=0, dtype=kind)
    if softcap is None:
        sums[1] -= torch.dot(features_sum, weight_sum) / len(weight)
    if not learn:
        return sums, []
    if of_weight is not None:
        of_weight = of_weight.T.contiguous()
    if smoothing and softcap is None:
        (of_x[::2] if terms.simcut else of_x).sub_(smoothing / len(weight) * weight_sum)
        if of_weight is not None:
            of_weight -= smoothing / len(weight) * features_sum
    of_mixture = [] if lost is None else [lost.sum(dim=1) + (pull - scored)[:, 0], -lost]
    return sums, [of_x, of_weight, *of_mixture]


def _padded(x: Tensor, kind: torch.dtype) -> Tensor:
    """Return rows (N, D) in another type, zero-padded to a multiple of `_NARROW_ROWS` rows."""
    padded = x.new_zeros(-(-len(x) // _NARROW_ROWS) * _NARROW_ROWS, x.shape[1], dtype=kind)
    padded[: len(x)] = x
    return padded


class _Block(NamedTuple):
    sums: Tensor
    """The sums of `_over_blocks` for this block, but spread still lacks the mean of the logits."""
    exponentials: Tensor
    """(N, V) numerators of the softmax."""
    total: Tensor
    """(N, 1) their row sums."""
    copied: Tensor | None
    """(N, S) -g_w (1 - s_w) for the tokens w that may be copied."""
    apart: Tensor | None
    """(N, V) the divergence's part h of g, without its weight."""


def _block(
    logits: Tensor,
    gold: Tensor,
    scored: Tensor,
    terms: LossTerms,
    mixture: Mixture | None,
    first: Tensor | None = None,
) -> _Block:
    """Return the loss sums of a block and the parts of their gradients, overwriting the logits.

    Rows of `scored` (N, 1) with 0 have no cross-entropy, only a divergence, and those with 1 both.

    On ties for the largest logit, `first` (N, 1) counts as the prediction. Without it, in training,
    any of them does, as finding the first would take a CPU ten times as long.

    The loss is -sum_w t_w log P(w), t the smoothed target and P(w) = e^generate q_w + copied_w,
    with the divergence of pairs. Its gradient at log P(w) is g_w = h_w - t_w. With s_w the
    vocabulary's share of P(w), which is 1 for what is not copied, the gradient at logit v is
    g_v s_v - q_v sum_w g_w s_w, and that at `generate` is the sum.
    """
    smoothing, pairs = terms.label_smoothing, terms.divergence_weight
    best = logits.amax(dim=-1, keepdim=True)
    gold_logit = logits.gather(1, gold)
    copyable = None if mixture is None else logits.gather(1, mixture.ids)
    # in place if the logits are not needed again: softmax would allocate another block
    exponentials = exp_(logits - best if pairs else logits.sub_(best))
    total = exponentials.sum(dim=-1, keepdim=True)
    norm = spread = best + total.log()
    copied = apart = None
    divergence = norm.new_zeros(())
    if mixture is not None and copyable is not None:
        norm = norm - mixture.generate[:, None]
        more = gain(copyable - norm, mixture.copy)  # log P(w) is logit + more - norm
        here = mixture.ids == gold
        best = torch.maximum(best, (copyable + more).amax(dim=-1, keepdim=True))
        gold_logit = gold_logit + torch.where(here, more, 0).sum(dim=-1, keepdim=True)
    right = gold_logit == best
    if first is not None:
        copies = False if mixture is None else here.any(dim=-1, keepdim=True)
        right = right & ((first == gold) | copies)
    if pairs:
        if mixture is None:
            likely = exponentials / total
        else:
            likely = (logits.scatter_add_(1, mixture.ids, more) - norm).exp()
        divergence, apart = _apart(logits, norm, likely, symmetric=not terms.simcut)
    if mixture is not None:
        target = here.to(more.dtype) * (1 - smoothing) + smoothing / logits.shape[1]
        target = target * scored
        if apart is not None:
            target = target - pairs * apart.gather(1, mixture.ids)
        copied = -torch.expm1(-more) * target
        spread = norm - more.sum(dim=-1, keepdim=True) / logits.shape[1]
    per_token = (norm - gold_logit) * scored, spread * scored, right * scored
    parts = *(part.sum() for part in per_token), divergence
    return _Block(torch.stack(parts), exponentials, total, copied, apart)


def _apart(logits: Tensor, norm: Tensor, likely: Tensor, symmetric: bool) -> tuple[Tensor, Tensor]:
    """Return KL(P1 || P2), with KL(P2 || P1) added if `symmetric`, over pairs of rows, and its
    gradient at log P as a free variable: P1 (log P1 - log P2) + P1 - P2 at the first of a pair.

    Args:
        logits: (N, V), minus `norm` (N, 1) log P; overwritten by the gradient.
        likely: (N, V) P.
    """
    scores, norms, likely = (part.unflatten(0, (-1, 2)) for part in (logits, norm, likely))
    gap = (scores[:, 0] - scores[:, 1]).sub_(norms[:, 0] - norms[:, 1])  # (N/2, V)
    first, second = likely.unbind(dim=1)
    shift = first - second if symmetric else first
    divergence = torch.dot(gap.flatten(), shift.flatten())
    torch.addcmul(shift, first, gap, out=scores[:, 0])
    torch.neg(shift, out=scores[:, 1])
    if symmetric:
        scores[:, 1].addcmul_(second, gap, value=-1)
    return divergence, logits
