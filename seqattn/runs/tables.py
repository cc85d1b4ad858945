"""How the runs print what they came to."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table


def print_table(title: str, rows: Mapping[str, str]) -> None:
    """Prints names and values in two columns, uncut where the output is no terminal."""
    table = Table(title=title, show_header=False)
    table.add_column()
    table.add_column(overflow="fold")  # a signature that is cut reproduces nothing
    for name, value in rows.items():
        table.add_row(name, value)
    console().print(table)


def print_comparison(
    title: str, columns: Sequence[str], rows: Mapping[str, Sequence[str]], notes: Sequence[str]
) -> None:
    """Prints a row of values for each name, a column for each thing compared, and notes below."""
    table = Table("", title=title)
    for column in columns:
        table.add_column(column, justify="right")
    for name, values in rows.items():
        table.add_row(name, *values)
    screen = console()
    screen.print(table)
    for note in notes:
        screen.print(note, highlight=False, markup=False, soft_wrap=True)


def console() -> Console:
    """Where tables go, uncut where the output is no terminal."""
    found = Console()
    return found if found.is_terminal else Console(width=160)
