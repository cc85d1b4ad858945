"""The precision that sums and layers need."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

LOG2_E = math.log2(math.e)


def wide(x: Tensor) -> Tensor:
    """The same in float32, or as it is where that is already finer."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


@contextmanager
def full_precision_on_cpu(x: Tensor) -> Iterator[Tensor]:
    """Runs a fused layer in float32 on a CPU under autocast, which lacks one in bfloat16 on many.

    Yields what to give it for the input x.
    """
    if x.device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
        yield x
        return
    with torch.autocast("cpu", enabled=False):
        yield x.float()
