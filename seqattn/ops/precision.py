"""The precision that sums need."""

import torch
from torch import Tensor


def wide(x: Tensor) -> Tensor:
    """The same in float32, or as it is where that is already finer."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
