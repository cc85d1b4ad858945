"""AdamW with moments of one byte each."""

import importlib
from typing import Any

from torch import nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from seqattn.checking import Dropout as Beta
from seqattn.checking import NotNegative, Rate
from seqattn.errors import UserError
from seqattn.installation import install
from seqattn.training.optim import matrices_and_others


def adamw_8bit(
    model: nn.Module,
    lr: Rate,
    betas: tuple[Beta, Beta] = (0.9, 0.98),
    eps: NotNegative = 1e-9,
    weight_decay: NotNegative = 0.0,
    fused: bool = True,
) -> Optimizer:
    """`adamw` with moments in blocks of 256 numbers of 8 bits (Dettmers et al. 2022, arXiv
    2110.02861), by bitsandbytes.

    Embeddings and positions have 32-bit moments, as the paper recommends, and so do vectors and
    matrices of fewer than 4,096 numbers.

    Args: as `adamw`; `fused` is ignored.

    Raises:
        UserError: for a value out of its range, for sharded weights, or if bitsandbytes is not
            installed.
    """
    if any(isinstance(weight, DTensor) for weight in model.parameters()):
        raise UserError("optimizer=adamw_8bit does not support trainer=fsdp2; use optimizer=adamw")
    try:
        optim: Any = importlib.import_module("bitsandbytes.optim")
    except ImportError as error:
        raise UserError(f"optimizer=adamw_8bit needs bitsandbytes; {install('8bit')}") from error

    class AdamW(optim.AdamW8bit):  # type: ignore[misc]
        """AdamW with a number of bits per group; bitsandbytes has one number for all weights."""

        def get_config(self, gindex: int, pindex: int, group: dict[str, Any]) -> dict[str, Any]:
            config: dict[str, Any] = super().get_config(gindex, pindex, group)
            return {**config, "optim_bits": group["bits"]}

    parts = zip(matrices_and_others(model), (weight_decay, 0.0), (8, 32), strict=True)
    groups = [{"params": some, "weight_decay": d, "bits": bits} for some, d, bits in parts if some]
    make: Any = AdamW  # the package has no types
    optimizer: Optimizer = make(groups, lr=lr, betas=betas, eps=eps)
    return optimizer
