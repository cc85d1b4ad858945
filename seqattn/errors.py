"""The one exception that speaks to the user."""


class UserError(ValueError):
    """What the user can mend; the command line prints it as one line and exits 2."""


class Stopped(Exception):
    """A run that a signal ended between two steps, its place saved.

    Args:
        signal: its number; the exit code is 128 more, as of a process that it killed.
        words: what to do next.
    """

    def __init__(self, signal: int, words: str) -> None:
        super().__init__(words)
        self.code = 128 + signal
