"""Exceptions meant for the user."""

from signal import Signals


class UserError(ValueError):
    """An error that the user can fix; the command line prints it as one line and exits with 2."""


class Stopped(Exception):
    """Raised after a signal has stopped training and a checkpoint has been saved.

    Args:
        signal: number of the signal, such as SIGTERM's.
        step: optimizer steps saved; None if unknown.
    """

    def __init__(self, signal: int, step: int | None = None) -> None:
        self.signal, self.step = int(signal), step
        where = "" if step is None else f" at step {step}"
        super().__init__(f"stopped by {Signals(signal).name}{where}")

    @property
    def code(self) -> int:
        """The exit code: 143 for SIGTERM, 130 for SIGINT."""
        return 128 + self.signal
