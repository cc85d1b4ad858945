"""A sequence split evenly over the ranks of a process group, and where each rank's part stands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from seqattn.errors import UserError

_groups: list[dist.ProcessGroup] = []


def split_group() -> dist.ProcessGroup | None:
    """The group that sequences are split over now; None where each process has them whole."""
    return _groups[-1] if _groups else None


@contextmanager
def split_over(group: dist.ProcessGroup) -> Iterator[None]:
    """Within the block, sequences are split over `group`, rank r holding the r-th part."""
    _groups.append(group)
    try:
        yield
    finally:
        _groups.pop()


def tokens_before(real: Tensor) -> Tensor | None:
    """How many real tokens of each sentence the ranks before this one hold.

    Args:
        real: (B, T) bool, this rank's part.

    Returns:
        (B, 1), or None where sequences are not split.

    Raises:
        UserError: where the ranks' parts are not of one size.
    """
    group = split_group()
    if group is None:
        return None
    sizes = gathered(torch.tensor(real.shape, device=real.device), group)
    if (sizes != sizes[0]).any():
        raise UserError(
            "a sequence must be split evenly, padded to a length that the ranks divide; they hold "
            f"parts of {', '.join(' x '.join(map(str, size)) for size in sizes.tolist())}"
        )
    counts = gathered(real.sum(dim=1), group)  # (ranks, B)
    return counts[: dist.get_rank(group)].sum(dim=0)[:, None]


def gathered(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """What every rank of `group` has as `x`, by rank: (ranks, ...)."""
    parts = [torch.empty_like(x) for _ in range(group.size())]
    dist.all_gather(parts, x.contiguous(), group=group)
    return torch.stack(parts)
