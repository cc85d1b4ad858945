"""Muon: orthogonalized updates of matrices."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import AdamW, Optimizer

from seqattn.checking import Dropout as Beta
from seqattn.checking import NotNegative, Rate
from seqattn.errors import UserError
from seqattn.training.optim import table_ids


class Muon(Optimizer):
    """Two optimizers combined, with a joint state.

    If `found_inf` is set, as for PyTorch's fused optimizers, a step changes nothing if it is 1; it
    is never read on the host.

    Args:
        parts: PyTorch's Muon for matrices and its AdamW for the rest.
    """

    def __init__(self, *parts: Optimizer) -> None:
        self._parts, self.found_inf = parts, None
        fused = all(part.defaults.get("fused", True) for part in parts)
        super().__init__([group for part in parts for group in part.param_groups], {"fused": fused})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self._parts:
            own = [one for one in self.param_groups if part.defaults.keys() <= one.keys()]
            part.param_groups, part.state = own, self.state  # loading replaces the state
            if self.found_inf is None or part.defaults.get("fused"):
                part.found_inf, part.grad_scale = self.found_inf, None  # type: ignore[attr-defined]
                part.step()
            else:
                self._step_if(self.found_inf == 0, part)
        return loss

    @torch.no_grad()
    def _step_if(self, goes: Tensor, part: Optimizer) -> None:
        """Step a part that ignores `found_inf`, and undo it on the device if that is 1."""
        weights = [w for group in part.param_groups for w in group["params"] if w.grad is not None]
        before = [(weight.clone(), dict(self.state[weight])) for weight in weights]
        for _, state in before:
            state.update({name: x.clone() for name, x in state.items() if isinstance(x, Tensor)})
        part.step()
        for weight, (old, state) in zip(weights, before, strict=True):
            weight.copy_(torch.where(goes, weight, old))
            for name, x in self.state[weight].items():
                if isinstance(x, Tensor):  # new states begin at 0
                    x.copy_(torch.where(goes, x, state.get(name, 0.0)))


def muon(
    model: nn.Module,
    lr: Rate,
    momentum: Beta = 0.95,
    betas: tuple[Beta, Beta] = (0.9, 0.98),
    eps: NotNegative = 1e-9,
    weight_decay: NotNegative = 0.0,
    fused: bool = True,
) -> Muon:
    """Build Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon), with AdamW for the rest.

    The momentum of each matrix is orthogonalized, and scaled to the size of an AdamW step (Liu et
    al. 2025, arXiv 2502.16982), so that both share a learning rate. AdamW optimizes embeddings,
    positions, `output_layers` of modules, and vectors.

    Args:
        model: its parameters are optimized; shared ones once.
        lr: the peak learning rate, which a schedule scales.
        momentum: share of the mean gradient of a matrix kept at each step.
        betas, eps: those of AdamW, as in `adamw`.
        weight_decay: share of a matrix subtracted at each step, times the learning rate.
        fused: as `adamw`.

    Raises:
        UserError: for a value out of its range, for sharded weights, or if PyTorch has no Muon.
    """
    if not hasattr(torch.optim, "Muon"):
        raise UserError(f"optimizer=muon needs PyTorch 2.9 or later, found {torch.__version__}")
    if any(isinstance(weight, DTensor) for weight in model.parameters()):
        raise UserError("optimizer=muon does not support trainer=fsdp2; use optimizer=adamw")
    tables = table_ids(model)
    for part in model.modules():
        for name in getattr(part, "output_layers", ()):
            tables |= {id(weight) for weight in getattr(part, name).parameters()}
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for weight in model.parameters():
        (matrices if weight.dim() == 2 and id(weight) not in tables else others).append(weight)
    return Muon(
        torch.optim.Muon(
            matrices, lr, weight_decay, momentum=momentum, adjust_lr_fn="match_rms_adamw"
        ),
        AdamW(others, lr, (betas[0], betas[1]), eps, weight_decay=0.0, fused=fused),
    )
