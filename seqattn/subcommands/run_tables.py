"""Tables stored in a run by other commands."""

import json
from pathlib import Path
from typing import TypedDict

from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError

from seqattn.errors import UserError
from seqattn.inputs import read_bytes
from seqattn.storage import file_faults, write_whole

TABLES = "tables"
"""Folder of a run with its tables, `NAME.json`."""


class TableDocument(TypedDict):
    """A table; a cell is a text, a number or None.

    A table with the columns "attention", "head" and "role" gives the roles of heads.
    """

    title: str
    columns: list[str]
    rows: list[list[str | float | None]]
    notes: list[str]


class _Table(BaseModel):
    model_config = ConfigDict(strict=True)

    title: str
    columns: list[str]
    rows: list[list[str | FiniteFloat | int | None]]
    notes: list[str] = []


def run_tables(run: Path) -> list[TableDocument]:
    """Return the tables of a run, sorted by file name.

    Raises:
        UserError: if a file is not a table, or a row does not match the columns.
    """
    tables: list[TableDocument] = []
    for path in sorted((run / TABLES).glob("*.json")):
        try:
            table = _Table.model_validate_json(read_bytes(path))
        except ValidationError as error:
            raise UserError(
                f"{path} is not a table with title, columns and rows; remove it"
            ) from error
        if any(len(row) != len(table.columns) for row in table.rows):
            raise UserError(f"each row of {path} must have one cell per column; remove the file")
        tables.append(table.model_dump())  # type: ignore[arg-type]
    return tables


def write_table(run: Path, name: str, table: TableDocument) -> None:
    """Write a table for `run_tables`, replacing one of the same name.

    Raises:
        UserError: if the run's directory cannot be written.
    """
    content = json.dumps(table, indent=1, ensure_ascii=False, allow_nan=False)
    with file_faults("write", run / TABLES):
        (run / TABLES).mkdir(exist_ok=True)
    write_whole(run / TABLES / f"{name}.json", f"{content}\n".encode())
