"""What the ranks of a step tell each other, in one reduction: units, and who must stop or save."""

import signal
import threading
from types import FrameType
from typing import Any

import torch
from lightning import Trainer
from torch import Tensor
from torch.optim import Optimizer

_ENDING = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGUSR1", signal.SIGTERM))
_TOLD = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """The last signal to this process that asks for an end; 0 for none.

    SIGUSR1, which SLURM may send before it takes a machine away, counts as SIGTERM.
    """

    def __init__(self) -> None:
        self.received = 0
        self._before: dict[int, Any] = {}

    def listen(self) -> None:
        """Hears signals from here on, where this is the main thread; a second Ctrl-C interrupts."""
        if threading.current_thread() is threading.main_thread():
            self._before = {one: signal.signal(one, self._hear) for one in _ENDING}

    def restore(self) -> None:
        """Leaves signals to whom they belonged before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.received:
            raise KeyboardInterrupt
        self.received = signal.SIGINT if number == signal.SIGINT else signal.SIGTERM


class Agreement:
    """What all ranks know after a step; on a GPU it is of the step before, so that none waits.

    Attributes:
        signals: what this rank was sent.
        wants_save: whether this rank asks for a checkpoint.
        stop: the signal that some rank was sent; 0 for none.
        save: whether some rank asked for a checkpoint.
        skipped: whether the update was left out, its gradients not being finite.
    """

    def __init__(self) -> None:
        self.signals = Signals()
        self.wants_save = False
        self.stop, self.save, self.skipped = 0, False, False
        self._told = torch.zeros(3)
        self._before: tuple[Tensor, torch.cuda.Event] | None = None

    def forget(self) -> None:
        """Drops what is still to come of a training that has ended."""
        self._before, self.skipped = None, False

    def reduce(self, units: Tensor, trainer: Trainer) -> Tensor:
        """The units of all ranks, in float64. Args: units: of this one, on its device."""
        if trainer.world_size == 1:
            return units.double()
        wanted = [float(self.signals.received == one) for one in _TOLD] + [float(self.wants_save)]
        told = units.new_zeros(4, dtype=torch.float64)
        told[0] = units
        for place, number in enumerate(wanted, 1):
            if number:  # seldom, so that nothing is copied to the device
                told[place] = number
        told = trainer.strategy.reduce(told, reduce_op="sum")
        self._told = told[1:]
        return told[0]

    def settle(self, norm: Tensor, optimizer: Optimizer, trainer: Trainer) -> None:
        """Leaves out an update whose gradients are not finite, on all ranks alike.

        Args:
            norm: of the gradients of all ranks.
            optimizer: about to step; a gradient of None moves nothing.
            trainer: of 16-mixed precision it leaves such updates out by itself.
        """
        finite = norm.isfinite()
        if trainer.precision == "16-mixed":
            finite = torch.ones_like(finite)
        elif optimizer.defaults.get("fused") and finite.is_cuda:
            optimizer.found_inf = (~finite).float()  # type: ignore[attr-defined]
            optimizer.grad_scale = None  # type: ignore[attr-defined]
        elif not finite:
            optimizer.zero_grad()
        if trainer.world_size == 1:
            self.stop, self.save = self.signals.received, self.wants_save
            [skipped] = self._known((~finite).float()[None])
        else:
            *told, save, skipped = self._known(
                torch.cat([self._told, (~finite).to(self._told)[None]])
            )
            self.stop = next((one for one, count in zip(_TOLD, told, strict=True) if count), 0)
            self.save = save > 0
        self.skipped = skipped > 0

    def stops_now(self, trainer: Trainer) -> int:
        """The signal that some rank was sent, asked of all of them at once; 0 for none."""
        if trainer.world_size == 1:
            return self.signals.received
        told = torch.tensor(self.signals.received, device=trainer.strategy.root_device)
        return int(trainer.strategy.reduce(told, reduce_op="max"))

    def _known(self, numbers: Tensor) -> list[float]:
        """Numbers of a step on the host; on a GPU those of the step before, zeros at first."""
        if not numbers.is_cuda:
            found: list[float] = numbers.tolist()
            return found
        buffer = torch.empty_like(numbers, device="cpu", pin_memory=True)
        buffer.copy_(numbers, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        before, self._before = self._before, (buffer, event)
        if before is None:
            return [0.0] * len(numbers)
        before[1].synchronize()
        return before[0].tolist()
