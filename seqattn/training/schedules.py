"""Learning-rate schedules: factors on the peak rate, by optimizer step from 0."""

import math
from collections.abc import Callable

from seqattn.checking import Count, CountOrNone, Share, Width
from seqattn.errors import UserError

Schedule = Callable[[int], float]
FLOOR = 0.01
"""Share of the peak rate at the end of a descent: at 0 the last step, and all steps of a longer
run, would have no effect."""


def _warmup(step: int, steps: int) -> float:
    return min(1.0, (step + 1) / max(1, steps))


def constant(warmup_steps: CountOrNone) -> Schedule:
    """Linear warm-up over `warmup_steps`, then the constant peak."""
    return lambda step: _warmup(step, warmup_steps)


def inverse_sqrt(warmup_steps: Count) -> Schedule:
    """Linear warm-up, then sqrt(warmup_steps / step), as fairseq's `inverse_sqrt`."""
    return lambda step: min((step + 1) / warmup_steps, math.sqrt(warmup_steps / (step + 1)))


def noam(warmup_steps: Count, dim: Width) -> Schedule:
    """dim^-0.5 * min(step^-0.5, step * warmup^-1.5) (Vaswani et al. 2017, eq. 3).

    Set `optimizer.lr` to 1, or to the paper's factor.
    """

    def factor(step: int) -> float:
        now = step + 1
        return float(dim**-0.5 * min(now**-0.5, now * warmup_steps**-1.5))

    return factor


def _descent(
    warmup_steps: int, total_steps: int, floor: float, curve: Callable[[float], float]
) -> Schedule:
    """Linear warm-up, then `curve` of the fraction done, scaled to end at `floor` in the last step.

    Without a warm-up the first step has the peak.
    """
    if total_steps <= warmup_steps:
        raise UserError(
            f"schedule.total_steps must be above schedule.warmup_steps ({warmup_steps}), got "
            f"{total_steps}; set trainer.max_steps, schedule.total_steps or schedule.warmup_steps"
        )

    peak = max(1, warmup_steps)  # step of the peak, counted from 1

    def factor(step: int) -> float:
        done = min(1.0, max(0, step + 1 - peak) / max(1, total_steps - peak))
        return _warmup(step, warmup_steps) * (floor + (1 - floor) * curve(done))

    return factor


def cosine(warmup_steps: CountOrNone, total_steps: int, floor: Share = FLOOR) -> Schedule:
    """Linear warm-up, then half a cosine down to `floor` of the peak at `total_steps`
    (Loshchilov and Hutter 2017, arXiv 1608.03983, eq. 5, without restarts)."""
    return _descent(
        warmup_steps, total_steps, floor, lambda done: 0.5 * (1 + math.cos(math.pi * done))
    )


def linear(warmup_steps: CountOrNone, total_steps: int, floor: Share = FLOOR) -> Schedule:
    """Linear warm-up, then a straight line down to `floor` of the peak at `total_steps`."""
    return _descent(warmup_steps, total_steps, floor, lambda done: 1 - done)
