"""The optimizer."""

from typing import Any

from torch import nn
from torch.optim import AdamW

from seqattn.checking import Dropout as Beta
from seqattn.checking import NotNegative, check
from seqattn.positions import Position


def table_ids(model: nn.Module) -> set[int]:
    """The `id` of every weight whose rows are looked up: embeddings, and vectors of positions."""
    parts = (part for part in model.modules() if isinstance(part, nn.Embedding | Position))
    return {id(weight) for part in parts for weight in part.parameters(recurse=False)}


def adamw(
    model: nn.Module,
    lr: NotNegative,
    betas: tuple[Beta, Beta] = (0.9, 0.98),
    eps: NotNegative = 1e-9,
    weight_decay: NotNegative = 0.0,
    fused: bool = True,
) -> AdamW:
    """AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101), decay on matrices alone.

    Embeddings, positions, biases and norms are not decayed.

    Args:
        model: its parameters are optimised; shared ones once.
        lr: the peak learning rate, which a schedule scales.
        betas: decay of the two moments a step.
        weight_decay: share of a weight taken off at each step, times the learning rate.
        fused: one pass over all parameters; off where gradients are scaled (16-mixed), since a
            fused step unscales them too late for clipping.

    Raises:
        UserError: for a value out of its range.
    """
    check(adamw, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
    tables = table_ids(model)
    decayed: list[nn.Parameter] = []
    kept: list[nn.Parameter] = []
    for parameter in model.parameters():
        matrix = parameter.dim() >= 2 and id(parameter) not in tables
        (decayed if matrix else kept).append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": parameters, "weight_decay": decay}
        for parameters, decay in ((decayed, weight_decay), (kept, 0.0))
        if parameters
    ]
    return AdamW(groups, lr=lr, betas=(betas[0], betas[1]), eps=eps, fused=fused)
