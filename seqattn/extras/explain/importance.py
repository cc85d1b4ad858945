"""Importance of a model's heads for its loss."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from seqattn.analysis.intervene import intervene
from seqattn.analysis.pairs import Pair
from seqattn.attention.base import Attention
from seqattn.models.base import Seq2SeqModel

Head = tuple[str, int]
"""Name of an attention, and number of one of its heads."""


def gate_sizes(model: nn.Module) -> dict[str, int]:
    """Return the number of heads of each attention that can be gated, by name."""
    return {n: one.gated_heads for n, one in model.named_modules() if isinstance(one, Attention)}


def head_importance(model: Seq2SeqModel, pairs: Sequence[Pair]) -> dict[str, Tensor]:
    """Compute |d loss / d gate| per head, averaged (Michel et al. 2019, arXiv 1905.10650, eq. 2).

    The loss is a sentence's negative log-likelihood in nats; the mean is over target tokens. To
    compare attentions, divide by the norm of an attention's heads, see `by_attention`.

    Args:
        model: in eval mode.
        pairs: sentences with their targets.

    Returns:
        Importance (H,) of each attention, with or without weights; {} if no attention has heads.
    """
    sizes = gate_sizes(model)
    device = next(model.parameters()).device
    total = {name: torch.zeros(heads, dtype=torch.float64) for name, heads in sizes.items()}
    for pair in pairs if sizes else ():
        gates = {
            name: torch.ones(heads, device=device, requires_grad=True)
            for name, heads in sizes.items()
        }
        source, read, target = (
            torch.tensor([row], device=device) for row in (pair.source, pair.read, pair.target)
        )
        with torch.enable_grad(), intervene(model, gates=gates):
            loss = model.loss(source, read, target).smoothed
        gradients = torch.autograd.grad(loss, list(gates.values()))
        for name, gradient in zip(sizes, gradients, strict=True):
            total[name] += gradient.abs().double().cpu()
    tokens = sum(len(pair.target) for pair in pairs)
    return {name: summed / max(1, tokens) for name, summed in total.items()}


def by_attention(importance: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Divide each attention's importance by its norm (Michel et al., section 2.3)."""
    return {name: x / x.norm().clamp(min=1e-30) for name, x in importance.items()}


def least_first(importance: Mapping[str, Tensor]) -> list[Head]:
    """Return all heads, the least important first."""
    heads = [(float(x), name, n) for name, of in importance.items() for n, x in enumerate(of)]
    return [(name, number) for _, name, number in sorted(heads)]


def random_order(importance: Mapping[str, Tensor], seed: int) -> list[Head]:
    """Return all heads in a random order, determined by the seed."""
    heads = least_first(importance)
    order = torch.randperm(len(heads), generator=torch.Generator().manual_seed(seed))
    return [heads[number] for number in order.tolist()]


def gates_without(model: nn.Module, heads: Iterable[Head]) -> dict[str, Tensor]:
    """Return gates for `intervene` that disable these heads."""
    gates = {name: torch.ones(size) for name, size in gate_sizes(model).items()}
    for name, number in heads:
        gates[name][number] = 0.0
    return gates
