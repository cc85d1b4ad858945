"""What a model says of the same sentences, from one validation to the next."""

import csv
import io
from collections.abc import Callable
from pathlib import Path

from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import TensorBoardLogger, WandbLogger

from seqattn.inputs import read_bytes
from seqattn.storage import write_whole

Table = list[list[str]]


class SampleTable(Callback):
    """A table of some outputs: a column for each sentence, a row for each validation.

    Sources and references stand above. A run that goes on adds to the table that it has.

    Args:
        samples: gives (source, hypothesis, reference) texts of the last validation.
        file: the table as CSV; loggers that show texts get it too, whole each time.
    """

    def __init__(self, samples: Callable[[], list[tuple[str, str, str]]], file: Path) -> None:
        self.samples = samples
        self.file = file

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking or trainer.state.fn != "fit" or not trainer.is_global_zero:
            return
        found = self.samples()
        if not found or trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        step = trainer.global_step  # which loggers count from 0
        sources, hypotheses, references = map(list, zip(*found, strict=True))
        above = [
            ["step", *(str(number) for number in range(1, len(found) + 1))],
            ["source", *sources],
            ["reference", *references],
        ]
        table = [*above, *self._before(above, step), [str(step), *hypotheses]]
        text = io.StringIO(newline="")
        csv.writer(text).writerows(table)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.file, text.getvalue().encode())
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoardLogger):
                logger.experiment.add_text("samples", _markdown(table), step - 1)
            elif isinstance(logger, WandbLogger):
                logger.log_text("samples", table[0], table[1:], step=step - 1)

    def _before(self, above: Table, step: int) -> Table:
        """The rows of earlier validations of the same sentences."""
        csv.field_size_limit((1 << 31) - 1)  # of a document; by default 131,072 characters
        if not self.file.is_file():
            return []
        try:
            kept = list(csv.reader(io.StringIO(read_bytes(self.file).decode(), newline="")))
            if kept[: len(above)] != above:
                return []
            return [row for row in kept[len(above) :] if int(row[0]) < step]
        except (ValueError, IndexError, csv.Error):  # damaged, as of other sentences
            return []


def _markdown(table: Table) -> str:
    """A table in Markdown, each cell on one line."""
    rows = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in table]
    rows.insert(1, ["---"] * len(rows[0]))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
