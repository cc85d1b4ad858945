"""How the runs print what they came to, and leave it for the report."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from seqattn.bundle.documents import CONFIG
from seqattn.runs.run_tables import TableDocument, write_table
from seqattn.storage import user_path


def print_table(
    title: str,
    rows: Mapping[str, str | Sequence[str]],
    columns: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> None:
    """Prints rows of values by their names, under `columns` if there are any, and notes below."""
    screen = Console(markup=False, emoji=False)  # names may have [brackets] and :colons:
    if not screen.is_terminal:  # which would cut lines
        screen.width = 160
    table = Table(title=title, show_header=bool(columns))
    table.add_column("", no_wrap=max(map(len, rows), default=0) <= screen.width // 3)
    for column in columns or [""]:
        # folded: a signature that is cut reproduces nothing
        table.add_column(column, overflow="fold", justify="right" if columns else "left")
    for name, values in rows.items():
        table.add_row(name, *([values] if isinstance(values, str) else values))
    screen.print(table)
    for note in notes:
        screen.print(note, highlight=False, soft_wrap=True)


def keep_tables(bundle: str, tables: Mapping[str, TableDocument]) -> None:
    """Writes tables where the report finds them, if the bundle stands in a run's directory.

    Args:
        bundle: its path.
        tables: by the names of their files.

    Raises:
        UserError: where the directory cannot be written.
    """
    run = user_path(bundle).parent
    if (run / CONFIG).is_file():
        for name, table in tables.items():
            write_table(run, name, table)


def print_tables(tables: Mapping[str, TableDocument], digits: Sequence[int]) -> None:
    """Prints tables of the same columns as one; a row is called by its first cell.

    Args:
        tables: by what tells them apart, which is shown where there are several.
        digits: behind the point, of each column but the first.
    """
    begins = {label: f"{label}  " if len(tables) > 1 else "" for label in tables}
    rows = {
        f"{begins[label]}{name}": numbers_told(values, digits)
        for label, table in tables.items()
        for name, *values in table["rows"]
    }
    labels: dict[str, list[str]] = {}
    for label, table in tables.items():
        for note in table["notes"]:
            labels.setdefault(note, []).append(label)
    notes = [
        note if len(of) == len(tables) else f"{', '.join(of)}: {note}"
        for note, of in labels.items()
    ]
    columns = max((table["columns"] for table in tables.values()), key=len)
    title = next(iter(tables.values()))["title"]
    print_table(title, rows, columns[1:], notes)


def numbers_told(values: Sequence[str | float | None], digits: Sequence[int]) -> list[str]:
    """Cells as they are printed. Args: digits: behind the point, of each."""
    return [
        one if isinstance(one, str) else "-" if one is None else f"{one:.{places}f}"
        for one, places in zip(values, digits, strict=True)
    ]
