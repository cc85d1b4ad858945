"""The optimizer, and its settings in a run that goes on."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn
from torch.optim import AdamW, Optimizer

from seqattn.checking import Dropout as Beta
from seqattn.checking import NotNegative
from seqattn.positions import Position


def table_ids(model: nn.Module) -> set[int]:
    """The `id` of every weight whose rows are looked up: embeddings, and vectors of positions."""
    parts = (part for part in model.modules() if isinstance(part, nn.Embedding | Position))
    return {id(weight) for part in parts for weight in part.parameters(recurse=False)}


def matrices_and_others(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Its matrices that are no tables, and all its other weights; shared ones once."""
    tables = table_ids(model)
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for weight in model.parameters():
        (matrices if weight.dim() >= 2 and id(weight) not in tables else others).append(weight)
    return matrices, others


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
    parts = zip(matrices_and_others(model), (weight_decay, 0.0), strict=True)
    groups = [{"params": some, "weight_decay": decay} for some, decay in parts if some]
    return AdamW(groups, lr=lr, betas=(betas[0], betas[1]), eps=eps, fused=fused)


def settings_of(optimizer: Optimizer) -> list[dict[str, Any]]:
    """The settings of each of its groups, without the weights; before any step."""
    return [{**group, "params": None} for group in optimizer.param_groups]


def apply_settings(
    groups: Sequence[Mapping[str, Any]], optimizer: Optimizer, factor: float
) -> list[float]:
    """Gives an optimizer the settings of this run, where a checkpoint brought others.

    Args:
        groups: as `settings_of` found them.
        factor: of the schedule at this step; the rates are then its own, to the bit.

    Returns:
        The rate of each group that the schedule scales.
    """
    for group, settings in zip(optimizer.param_groups, groups, strict=True):
        rates = {"lr": settings["lr"] * factor, "initial_lr": settings["lr"]}
        group.update({**settings, **rates, "params": group["params"]})
    return [settings["lr"] for settings in groups]
