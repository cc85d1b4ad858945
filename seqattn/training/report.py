"""Figures of a training run, which its loggers, lines and summary show."""

import math
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any

import torch
from lightning import Trainer
from torch import Tensor


def logs_now(trainer: Trainer) -> bool:
    """Return True if the optimizer step that ends is logged."""
    every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
    return trainer.global_step % max(1, every) == 0


class Throughput:
    """Tokens per second, share of padding, share of time spent waiting for data, and rates.

    Waiting is all time between the end of a step and the start of the next, except validation.
    Padding and tokens seen cover the whole run, resumptions included; speed and times cover only
    this process.

    Args:
        unit: name of the counted tokens.
        count: returns their number in a batch.
    """

    def __init__(
        self, unit: str = "target tokens", count: Callable[[Any], int] = attrgetter("target_tokens")
    ) -> None:
        self.unit, self.count = unit, count
        self.tokens = self._batches = self._tokens_before = 0
        self.busy_seconds = self.waiting_seconds = self._padding = self._began = 0.0
        self._ended = math.inf
        self._reported = (0, 0.0)
        self._rates: dict[str, float] = {}

    @property
    def seconds(self) -> float:
        """Seconds of training, excluding validation."""
        return self.busy_seconds + self.waiting_seconds

    def summary(self) -> dict[str, float]:
        """Return tokens per second, and padding and waiting shares (0 to 1), of all steps."""
        return {
            "tokens_per_second": self.tokens / max(self.seconds, 1e-9),
            "padding_share": self._padding / max(self._batches, 1),
            "waiting_share": self.waiting_seconds / max(self.seconds, 1e-9),
        }

    def begin_epoch(self) -> None:
        """Wait for data from now on."""
        self._ended = time.perf_counter()

    def pause(self) -> None:
        """Leave out the time until the next step, as of a validation."""
        self._ended = math.inf

    def begin_step(self, groups: Sequence[Mapping[str, Any]]) -> None:
        """Stop waiting. Args: groups: the optimizer's, with the learning rates of this step."""
        parts = {
            f"lr/{one['part'].replace('*', '_')}": one["lr"] for one in groups if one.get("part")
        }
        self._rates = {"lr": groups[0]["lr"] / groups[0].get("factor", 1.0), **parts}
        self._began = time.perf_counter()
        self.waiting_seconds += max(0.0, self._began - self._ended)

    def end_step(self, batches: Sequence[Any], ranks: int) -> None:
        """Count a step, and wait for data again. Args: batches: of one of the ranks."""
        self._ended = time.perf_counter()
        self.busy_seconds += self._ended - self._began
        self.tokens += sum(map(self.count, batches)) * ranks
        self._batches += len(batches)
        self._padding += sum(batch.padding_share for batch in batches)

    def figures(self) -> dict[str, float]:
        """Return the speed since the last call, with the other figures of the step that ended."""
        tokens, seconds = self._reported
        self._reported = (self.tokens, self.seconds)
        return {
            **self.summary(),
            "tokens_per_second": (self.tokens - tokens) / max(self.seconds - seconds, 1e-9),
            "tokens": self._tokens_before + self.tokens,
            **self._rates,
        }

    def state_dict(self) -> dict[str, Any]:
        seen = self._tokens_before + self.tokens
        return {"steps": self._batches, "padding": self._padding, "tokens": seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._batches, self._padding = state["steps"], state["padding"]
        self._tokens_before = state["tokens"] - self.tokens


class ClipShare:
    """Share of updates with a clipped gradient since the last call of `figures`."""

    def __init__(self) -> None:
        self._clipped: Tensor | int = 0
        self._updates = 0

    def end_step(self, norm: Tensor, limit: float | None) -> None:
        """Count a step. Args: norm: of its gradient, before clipping."""
        if limit:
            self._clipped = self._clipped + (norm > limit)
            self._updates += 1

    def figures(self) -> dict[str, Any]:
        """Return the share, 0 to 1; nothing without a limit."""
        if not self._updates:
            return {}
        share, self._clipped = self._clipped / self._updates, 0
        self._updates = 0
        return {"clip_share": share}

    def state_dict(self) -> dict[str, Any]:
        return {"clipped": int(self._clipped), "updates": self._updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._clipped, self._updates = state["clipped"], state["updates"]


class TimeLeft:
    """Time until the last step, at the mean speed of this process."""

    def __init__(self) -> None:
        self.first, self.steps = 0, math.inf
        """Step that this process begins with, and steps that it has to do."""
        self._began = time.monotonic()

    def begin(self, trainer: Trainer) -> None:
        """Measure from now on."""
        self.first = trainer.global_step
        self.steps = trainer.estimated_stepping_batches - self.first
        self._began = time.monotonic()

    def per_step(self, step: int) -> float:
        """Return the mean seconds of a step, validations included. Args: step: the last."""
        return (time.monotonic() - self._began) / max(1, step - self.first)

    def figures(self, step: int) -> dict[str, float]:
        """Return the seconds left after a step; nothing if the number of steps is unknown."""
        left = self.per_step(step) * (self.first + self.steps - step)
        return {"seconds_left": left} if math.isfinite(left) else {}


def device_figures(device: torch.device) -> dict[str, float]:
    """Return peak memory in MB (10^6 bytes), and the recent utilization of a GPU (0 to 1).

    On a CPU it is the resident memory of this process, on a GPU the memory of its tensors. The
    second is omitted if it is not available: it needs the package `nvidia-ml-py` and the driver's
    support, which is missing for a part of a GPU (MIG).
    """
    if device.type != "cuda":
        unit = 1 if sys.platform == "darwin" else 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {"peak_memory_mb": peak * unit / 1e6}
    figures = {"peak_memory_mb": torch.cuda.max_memory_allocated(device) / 1e6}
    with suppress(Exception):  # that package has a class for each error
        figures["gpu_busy_share"] = torch.cuda.utilization(device) / 100
    return figures


class BestScore:
    """Best value of a logged number so far, returned to a sweeper.

    Args:
        mode: which way is better, min or max.
    """

    def __init__(self, name: str, mode: str) -> None:
        self.name, self.sign = name, 1 if mode == "min" else -1
        self.best: float | None = None
        self.step = self.count = 0
        """Step of the best value, and number of values."""

    def end_validation(self, scores: Mapping[str, Any], step: int) -> None:
        """Compare the value of a validation, if it has one."""
        if self.name not in scores:
            return
        value = float(scores[self.name])
        self.count += 1
        if math.isnan(value):
            return
        if self.best is None or self.sign * value < self.sign * self.best:
            self.best, self.step = value, step

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "step": self.step, "count": self.count, "name": self.name}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state.get("name", self.name) != self.name:
            return  # saved for another metric
        self.best, self.step, self.count = (state[name] for name in ("best", "step", "count"))
