"""Exchange of ranks in a step: units of the loss, requests to stop or save, skipped updates."""

import signal
import threading
from types import FrameType
from typing import Any

import torch
from lightning import Trainer
from torch import Tensor

from seqattn.processes import HANGUP, leave_closed_terminal

_ENDING = (signal.SIGINT, signal.SIGTERM, HANGUP, getattr(signal, "SIGUSR1", signal.SIGTERM))
_STOPS = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """Last signal to this process that requests a stop; 0 for none.

    SIGHUP of a closed terminal, unless it is ignored as under nohup, and SIGUSR1, which SLURM may
    send before it revokes a machine, count as SIGTERM.
    """

    def __init__(self) -> None:
        self.received = 0
        self._handlers: dict[int, Any] = {}

    def listen(self) -> None:
        """Handle signals from now on, in the main thread only; a second Ctrl-C interrupts."""
        if threading.current_thread() is threading.main_thread():
            ignored = signal.getsignal(HANGUP) == signal.SIG_IGN
            numbers = [number for number in _ENDING if not (ignored and number == HANGUP)]
            self._handlers = {number: signal.signal(number, self._hear) for number in numbers}

    def restore(self) -> None:
        """Restore the previous signal handlers."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}

    def _hear(self, number: int, frame: FrameType | None) -> None:
        leave_closed_terminal()
        if number == signal.SIGINT and self.received:
            raise KeyboardInterrupt
        self.received = signal.SIGINT if number == signal.SIGINT else signal.SIGTERM


class StepExchange:
    """One reduction a step over all ranks; on a GPU, its requests are known a step later.

    Attributes:
        signals: signals received by this rank.
        wants_save: True if this rank requests a checkpoint.
        stop: signal received by any rank; 0 for none.
        save: True if any rank requested a checkpoint.
        skipped: True if the update was skipped because its gradients were not finite.
    """

    def __init__(self) -> None:
        self.signals = Signals()
        self.wants_save = False
        self.stop, self.save, self.skipped = 0, False, False
        self._counts = torch.zeros(3)
        self._previous: tuple[Tensor, torch.cuda.Event] | None = None

    def reset(self) -> None:
        """Drop pending values of a training run that has ended."""
        self._previous, self.skipped = None, False

    def sum_units(self, units: int, trainer: Trainer) -> float | Tensor:
        """Send units and requests; return the sum of units, on several GPUs as a tensor."""
        if trainer.world_size == 1:
            return units
        received = self.signals.received
        requests = [*(received == stop for stop in _STOPS), self.wants_save]
        totals = torch.zeros(4, dtype=torch.float64, device=trainer.strategy.root_device)
        totals[0] = units
        for index, requested in enumerate(requests, 1):
            if requested:  # rarely: usually nothing is copied to the device
                totals[index] = 1
        totals = trainer.strategy.reduce(totals, reduce_op="sum")
        self._counts = totals[1:]
        return float(totals[0]) if totals.is_cpu else totals[0].float()

    def update(self, finite: Tensor, trainer: Trainer) -> None:
        """Learn what the ranks have requested. Args: finite: False if this update is skipped."""
        skipped = ~finite
        if trainer.world_size == 1:
            self.stop, self.save = self.signals.received, self.wants_save
            [skips] = self._on_host(skipped.float()[None])
        else:
            counts = torch.cat([self._counts, skipped.to(self._counts)[None]])
            *stops, saves, skips = self._on_host(counts)
            self.stop = next((one for one, count in zip(_STOPS, stops, strict=True) if count), 0)
            self.save = saves > 0
        self.skipped = skips > 0

    def stops_now(self, trainer: Trainer) -> int:
        """Return the signal received by any rank, 0 for none; a collective call."""
        if trainer.world_size == 1:
            return self.signals.received
        received = torch.tensor(self.signals.received, device=trainer.strategy.root_device)
        return int(trainer.strategy.reduce(received, reduce_op="max"))

    def _on_host(self, numbers: Tensor) -> list[float]:
        """Return a step's numbers on the host; on a GPU, the previous step's, initially zeros."""
        if not numbers.is_cuda:
            values: list[float] = numbers.tolist()
            return values
        buffer = torch.empty_like(numbers, device="cpu", pin_memory=True)
        buffer.copy_(numbers, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        previous, self._previous = self._previous, (buffer, event)
        if previous is None:
            return [0.0] * len(numbers)
        previous[1].synchronize()
        return previous[0].tolist()
