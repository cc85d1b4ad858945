"""The exceptions that speak to the user."""

from signal import Signals


class UserError(ValueError):
    """What the user can mend; the command line prints it as one line and exits 2."""


class Stopped(Exception):
    """A training that a signal has ended, once it had saved.

    Args:
        signal: its number, SIGTERM's for one.
        step: optimizer steps that are saved; None where that is not known.
    """

    def __init__(self, signal: int, step: int | None = None) -> None:
        self.signal, self.step = int(signal), step
        where = "" if step is None else f" at step {step}"
        super().__init__(f"stopped by {Signals(signal).name}{where}")

    @property
    def code(self) -> int:
        """The exit code: 143 for SIGTERM, 130 for SIGINT."""
        return 128 + self.signal
