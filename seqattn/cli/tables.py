"""How the commands print tables of measurements."""

from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from seqattn.benchmarks.measure import Spread


def shown(spread: "Spread") -> str:
    """The middle, and the ends."""
    return f"{spread.median:.2f} ({spread.low:.2f} to {spread.high:.2f})"


def console() -> Console:
    """Tables stay uncut where the output is no terminal."""
    found = Console()
    return found if found.is_terminal else Console(width=160)
