"""How much a model's loss depends on each of its heads."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from seqattn.analysis.intervene import intervene
from seqattn.analysis.pairs import Pair
from seqattn.attention.base import Attention
from seqattn.models.base import Seq2SeqModel

Head = tuple[str, int]
"""The name of an attention, and the number of one of its heads."""


def gate_sizes(model: nn.Module) -> dict[str, int]:
    """How many heads each attention of a model has to gate, by its name."""
    return {n: one.gated_heads for n, one in model.named_modules() if isinstance(one, Attention)}


def head_importance(model: Seq2SeqModel, pairs: Sequence[Pair]) -> dict[str, Tensor]:
    """The mean of |d loss / d gate| of each head (Michel et al. 2019, arXiv 1905.10650, eq. 2).

    The loss is a sentence's negative log-likelihood in nats, the mean is over target tokens.
    Divide by the norm of an attention's heads, as `by_attention` does, to compare attentions.

    Args:
        model: in eval mode.
        pairs: sentences with their targets.

    Returns:
        For each attention (H,), weights or no weights; {} for a model whose attention has no heads.
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
    """Each attention's numbers divided by their norm, as section 2.3 of Michel et al. has it."""
    return {name: x / x.norm().clamp(min=1e-30) for name, x in importance.items()}


def least_first(importance: Mapping[str, Tensor]) -> list[Head]:
    """All heads, the least important first."""
    heads = [(float(x), name, n) for name, of in importance.items() for n, x in enumerate(of)]
    return [(name, number) for _, name, number in sorted(heads)]


def random_order(importance: Mapping[str, Tensor], seed: int) -> list[Head]:
    """All heads, in an order drawn anew for each seed."""
    heads = least_first(importance)
    drawn = torch.randperm(len(heads), generator=torch.Generator().manual_seed(seed))
    return [heads[number] for number in drawn.tolist()]


def gates_without(model: nn.Module, heads: Iterable[Head]) -> dict[str, Tensor]:
    """Gates for `intervene` that take these heads out."""
    gates = {name: torch.ones(size) for name, size in gate_sizes(model).items()}
    for name, number in heads:
        gates[name][number] = 0.0
    return gates
