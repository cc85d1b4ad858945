"""How the runs print what they came to."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table


def print_table(
    title: str,
    rows: Mapping[str, str | Sequence[str]],
    columns: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> None:
    """Prints rows of values by their names, under `columns` if there are any, and notes below."""
    table = Table("", title=title, show_header=bool(columns))
    for column in columns or [""]:
        # folded: a signature that is cut reproduces nothing
        table.add_column(column, overflow="fold", justify="right" if columns else "left")
    for name, values in rows.items():
        table.add_row(name, *([values] if isinstance(values, str) else values))
    screen = Console()
    screen = screen if screen.is_terminal else Console(width=160)  # no terminal cuts lines
    screen.print(table)
    for note in notes:
        screen.print(note, highlight=False, markup=False, soft_wrap=True)
