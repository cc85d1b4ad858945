"""Learning-rate schedules: factors on the peak rate, by optimizer step from 0."""

import math
from collections.abc import Callable

from seqattn.errors import UserError

Schedule = Callable[[int], float]


def _warmup(step: int, steps: int) -> float:
    return min(1.0, (step + 1) / max(1, steps))


def constant(warmup_steps: int) -> Schedule:
    """Linear warm-up over `warmup_steps`, then the peak for ever."""
    return lambda step: _warmup(step, warmup_steps)


def inverse_sqrt(warmup_steps: int) -> Schedule:
    """Linear warm-up, then sqrt(warmup_steps / step), as fairseq's `inverse_sqrt`."""
    if warmup_steps < 1:
        raise UserError(f"schedule.warmup_steps must be at least 1, got {warmup_steps}")

    def factor(step: int) -> float:
        return min((step + 1) / warmup_steps, math.sqrt(warmup_steps / (step + 1)))

    return factor


def noam(warmup_steps: int, dim: int) -> Schedule:
    """dim^-0.5 * min(step^-0.5, step * warmup^-1.5) (Vaswani et al. 2017, eq. 3).

    Set `optimizer.lr` to 1, or to the paper's factor.
    """
    if warmup_steps < 1:
        raise UserError(f"schedule.warmup_steps must be at least 1, got {warmup_steps}")

    def factor(step: int) -> float:
        now = step + 1
        return float(dim**-0.5 * min(now**-0.5, now * warmup_steps**-1.5))

    return factor


def _share_done(step: int, warmup_steps: int, total_steps: int) -> float:
    return min(1.0, max(0, step + 1 - warmup_steps) / (total_steps - warmup_steps))


def _check_total(warmup_steps: int, total_steps: int) -> None:
    if total_steps <= warmup_steps:
        raise UserError(
            f"schedule.total_steps must be above schedule.warmup_steps ({warmup_steps}), got "
            f"{total_steps}; set trainer.max_steps or schedule.total_steps"
        )


def cosine(warmup_steps: int, total_steps: int, floor: float = 0.0) -> Schedule:
    """Linear warm-up, then half a cosine down to `floor` of the peak at `total_steps`
    (Loshchilov and Hutter 2017, arXiv 1608.03983, eq. 5, without restarts)."""
    _check_total(warmup_steps, total_steps)

    def factor(step: int) -> float:
        done = _share_done(step, warmup_steps, total_steps)
        fallen = floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done))
        return _warmup(step, warmup_steps) * fallen

    return factor


def linear(warmup_steps: int, total_steps: int, floor: float = 0.0) -> Schedule:
    """Linear warm-up, then a straight line down to `floor` of the peak at `total_steps`."""
    _check_total(warmup_steps, total_steps)

    def factor(step: int) -> float:
        done = _share_done(step, warmup_steps, total_steps)
        return _warmup(step, warmup_steps) * (1 - (1 - floor) * done)

    return factor
