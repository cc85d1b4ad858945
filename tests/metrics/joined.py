"""Metrics of several ranks."""

import torch
from torchmetrics import MetricCollection


def joined(*ranks):
    """Puts the sums of all ranks into the first rank's metrics."""
    metrics = ([*one.values()] if isinstance(one, MetricCollection) else [one] for one in ranks)
    for first, *others in zip(*metrics, strict=True):
        for state, reduce in first._reductions.items():
            parts = [getattr(metric, state) for metric in (first, *others)]
            setattr(first, state, reduce(torch.stack(parts)))
