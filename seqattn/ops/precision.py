"""Precision of sums and fused layers."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

LOG2_E = math.log2(math.e)


def wide(x: Tensor) -> Tensor:
    """Return x in float32, or unchanged if its type is more precise."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


@contextmanager
def full_precision_on_cpu(x: Tensor) -> Iterator[Tensor]:
    """Run a fused layer in float32 under CPU autocast, as many CPUs have none for bfloat16.

    Yields the input to use for x.
    """
    if x.device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
        yield x
        return
    with torch.autocast("cpu", enabled=False):
        yield x.float()
