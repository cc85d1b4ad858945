"""Metrics of several ranks."""

import torch


def joined(first, *others):
    """Puts the sums of all ranks into the first rank's means."""
    for name in first:
        for state, reduce in first[name]._reductions.items():
            parts = [getattr(rank[name], state) for rank in (first, *others)]
            setattr(first[name], state, reduce(torch.stack(parts)))
