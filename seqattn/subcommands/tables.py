"""Printing result tables, and storing them for the report."""

from collections.abc import Mapping, Sequence

from seqattn.screen import print_table
from seqattn.settings.documents import CONFIG
from seqattn.storage import user_path
from seqattn.subcommands.run_tables import TableDocument, write_table


def keep_tables(bundle: str, tables: Mapping[str, TableDocument]) -> None:
    """Write tables for the report, if the bundle is in a run's directory.

    Args:
        bundle: path of the bundle.
        tables: by file name.

    Raises:
        UserError: if the directory cannot be written.
    """
    run = user_path(bundle).parent
    if (run / CONFIG).is_file():
        for name, table in tables.items():
            write_table(run, name, table)


def print_tables(tables: Mapping[str, TableDocument], digits: Sequence[int]) -> None:
    """Print tables with equal columns as one; the first cell of a row is its label.

    Args:
        tables: by label, which is shown if there are several.
        digits: decimals of each column but the first.
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
    """Return cells formatted as text. Args: digits: decimal places of each."""
    return [
        one if isinstance(one, str) else "-" if one is None else f"{one:.{places}f}"
        for one, places in zip(values, digits, strict=True)
    ]
