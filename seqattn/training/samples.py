"""Outputs of the same sentences at each validation."""

import csv
import io
from collections.abc import Callable
from pathlib import Path

from lightning import Trainer

from seqattn.inputs import read_bytes
from seqattn.storage import write_whole
from seqattn.training.run_logger import run_loggers

Table = list[list[str]]


class SampleTable:
    """Write a table of outputs: a column for each sentence, a row for each validation.

    Sources and references are the first rows. A resumed run extends its table.

    Args:
        samples: returns (source, hypothesis, reference) texts of the last validation.
        file: the table as CSV; loggers that show tables get all of it each time.
    """

    def __init__(self, samples: Callable[[], list[tuple[str, str, str]]], file: Path) -> None:
        self.samples = samples
        self.file = file

    def end_validation(self, trainer: Trainer) -> None:
        """Add a row, except in a trial run."""
        samples = self.samples()
        if not samples or trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        step = trainer.global_step  # loggers count steps from 0
        sources, hypotheses, references = map(list, zip(*samples, strict=True))
        above = [
            ["step", *(str(number) for number in range(1, len(samples) + 1))],
            ["source", *sources],
            ["reference", *references],
        ]
        table = [*above, *self._earlier_rows(above, step), [str(step), *hypotheses]]
        text = io.StringIO(newline="")
        csv.writer(text).writerows(table)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.file, text.getvalue().encode())
        for logger in run_loggers(trainer.loggers):
            logger.show_table("samples", table, step - 1)

    def _earlier_rows(self, above: Table, step: int) -> Table:
        """Return the rows of earlier validations of the same sentences."""
        csv.field_size_limit((1 << 31) - 1)  # for documents; the default is 131,072 characters
        if not self.file.is_file():
            return []
        try:
            rows = list(csv.reader(io.StringIO(read_bytes(self.file).decode(), newline="")))
            if rows[: len(above)] != above:
                return []
            return [row for row in rows[len(above) :] if int(row[0]) < step]
        except (ValueError, IndexError, csv.Error):  # damaged: treated as if of other sentences
            return []
