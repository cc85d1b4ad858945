"""The optimizer, and its settings in a resumed run."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn
from torch.optim import AdamW, Optimizer

from seqattn.checking import Dropout as Beta
from seqattn.checking import NotNegative, Rate
from seqattn.positions import Position


def table_ids(model: nn.Module) -> set[int]:
    """Return the `id` of every lookup table: embeddings, and vectors of positions.

    Also of parameters that a module declares in `not_matrices`, such as a vector for each head, and
    of vectors with two axes, such as the weights of a Linear to one output.
    """
    return {
        id(weight)
        for part in model.modules()
        for name, weight in part.named_parameters(recurse=False)
        if isinstance(part, nn.Embedding | Position)
        or name in getattr(part, "not_matrices", ())
        or (weight.dim() > 1 and weight.numel() == max(weight.shape))
    }


def matrices_and_others(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return a model's matrices except lookup tables, and its other weights; shared ones once."""
    tables = table_ids(model)
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for weight in model.parameters():
        (matrices if weight.dim() >= 2 and id(weight) not in tables else others).append(weight)
    return matrices, others


def adamw(
    model: nn.Module,
    lr: Rate,
    betas: tuple[Beta, Beta] = (0.9, 0.98),
    eps: NotNegative = 1e-9,
    weight_decay: NotNegative = 0.0,
    fused: bool = True,
) -> AdamW:
    """Build AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101) with decay on matrices only.

    Embeddings, positions, vectors and `not_matrices` of modules are not decayed.

    Args:
        model: its parameters are optimized; shared ones once.
        lr: the peak learning rate, which a schedule scales.
        betas: decay of the two moments per step.
        weight_decay: share of a weight subtracted at each step, times the learning rate.
        fused: one pass over all parameters; False with scaled gradients (16-mixed), since a fused
            step unscales them too late for clipping.

    Raises:
        UserError: for a value out of its range.
    """
    parts = zip(matrices_and_others(model), (weight_decay, 0.0), strict=True)
    groups = [{"params": some, "weight_decay": decay} for some, decay in parts if some]
    return AdamW(groups, lr=lr, betas=(betas[0], betas[1]), eps=eps, fused=fused)


def settings_of(optimizer: Optimizer) -> list[dict[str, Any]]:
    """Return the settings of each group without the weights, before any step."""
    return [{**group, "params": None} for group in optimizer.param_groups]


def apply_settings(
    groups: Sequence[Mapping[str, Any]], optimizer: Optimizer, factor: float
) -> list[float]:
    """Restore this run's settings of an optimizer after a checkpoint was loaded.

    Args:
        groups: from `settings_of`.
        factor: the schedule's factor at this step; the rates then equal the schedule's exactly.

    Returns:
        The base rate of each group, which the schedule scales.
    """
    for group, settings in zip(optimizer.param_groups, groups, strict=True):
        rates = {"lr": settings["lr"] * factor, "initial_lr": settings["lr"]}
        group.update({**settings, **rates, "params": group["params"]})
    return [settings["lr"] for settings in groups]
