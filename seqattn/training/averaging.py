"""Averages of checkpoints."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor


def average_weights(states: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several state dicts of one model, summed in float64.

    Whole-number entries (counters) are taken from the last. A single state comes back as it is.

    Raises:
        ValueError: where there is none, or their names differ.
    """
    sums: dict[str, Tensor] = {}
    last: Mapping[str, Tensor] = {}
    count = 0
    for state in states:
        if last and state.keys() != last.keys():
            raise ValueError("the checkpoints to average hold different weights")
        for name, weight in state.items():
            if weight.is_floating_point():
                sums[name] = sums[name] + weight.double() if name in sums else weight.double()
        last, count = state, count + 1
    if count == 0:
        raise ValueError("there is no checkpoint to average")
    return {
        name: (sums[name] / count).to(weight.dtype) if name in sums else torch.clone(weight)
        for name, weight in last.items()
    }
