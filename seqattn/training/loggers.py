"""Loggers that go on with a run: one file of figures, one TensorBoard run, one wandb run."""

import csv
import io
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger, WandbLogger
from lightning.pytorch.loggers.csv_logs import ExperimentWriter

from seqattn.errors import UserError
from seqattn.inputs import csv_rows, read_bytes
from seqattn.storage import write_whole

_LONGEST_TAG = 64
"""Characters that wandb takes."""


class Figures(ExperimentWriter):
    """A file of figures that is appended to, where Lightning's begins it anew."""

    def __init__(self, log_dir: str) -> None:
        super().__init__(log_dir)
        self.file = Path(self.metrics_file_path)
        self.metrics_keys = sorted({key for row in csv_rows(self.file) for key in row})

    def save(self) -> None:
        """Appends the rows that were logged, or writes the file anew where it gets new columns."""
        new = set().union(*self.metrics) - set(self.metrics_keys)
        if new:
            self.metrics_keys = sorted({*self.metrics_keys, *new})
            self._write([*csv_rows(self.file), *self.metrics])
        elif self.metrics:
            with self.file.open("a", encoding="utf-8", newline="") as file:
                csv.DictWriter(file, self.metrics_keys).writerows(self.metrics)
        self.metrics = []

    def keep_before(self, step: int) -> None:
        """Takes away the rows of this step and later ones, and one that was cut."""
        kept = [row for row in csv_rows(self.file) if float(row.get("step") or "inf") < step]
        if kept:
            self._write(kept)
        else:
            self.file.unlink(missing_ok=True)
            self.metrics_keys = []

    def _write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, self.metrics_keys)
        writer.writeheader()
        writer.writerows(rows)
        write_whole(self.file, text.getvalue().encode())

    def _check_log_dir_exists(self) -> None:
        """Lightning's takes the file away."""


class CSVFile(CSVLogger):
    """Lightning's log of figures, as one file for all of a run; each row is written at once."""

    def __init__(self, save_dir: str) -> None:
        super().__init__(save_dir, "csv", version=0, flush_logs_every_n_steps=1)

    @property
    @rank_zero_experiment
    def experiment(self) -> Figures:
        """What writes the file."""
        if not isinstance(self._experiment, Figures):
            self._experiment = Figures(self.log_dir)
        return self._experiment


class WandbRun(WandbLogger):
    """Lightning's log to wandb, which can keep files of a run beside its figures.

    Args:
        artifacts: whether the bundle, and the report where there is one, are kept in the end.
        **options: as of Lightning's.
    """

    def __init__(self, artifacts: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.artifacts = artifacts

    def keep(self, path: Path, kind: str, aliases: Sequence[str]) -> None:
        """Keeps a file or a directory as an artifact; nothing where it is not there.

        Args:
            path: of the file or directory.
            kind: such as model; with the run's id it makes the artifact's name.
            aliases: that this version of it goes by, beside latest.
        """
        if not path.exists():
            return
        import wandb

        artifact = wandb.Artifact(f"{kind}-{self.experiment.id}", type=kind)
        (artifact.add_dir if path.is_dir() else artifact.add_file)(str(path))
        self.experiment.log_artifact(artifact, aliases=list(aliases))


def made_loggers(makers: Mapping[str, Callable[..., Any]]) -> list[Any]:
    """Lightning loggers. Args: makers: of each, by any names.

    Raises:
        UserError: where one needs a package that is not there.
    """
    try:
        return [make() for make in makers.values()]
    except ImportError as error:  # Lightning has some that need packages of their own
        raise UserError(f"logger: {error}") from error


def go_on_from(loggers: Sequence[Any], step: int) -> None:
    """Takes away what a process that was killed still logged after the last checkpoint.

    A wandb run keeps it: its figures of these steps are there twice.

    Args:
        loggers: of the run, on its first rank.
        step: optimizer steps that the run goes on from; 0 for one that begins.
    """
    for logger in loggers:
        if isinstance(logger, CSVFile):
            logger.experiment.keep_before(step)
        elif isinstance(logger, TensorBoardLogger):
            logger.experiment.close()  # what is written next hides these steps where they are shown
            logger.experiment.purge_step = step


def log_settings(loggers: Sequence[Any], settings: Mapping[str, Any], step: int) -> None:
    """Tells the loggers what a run is made with; TensorBoard shows it as a text.

    Args: as `go_on_from`.
    """
    for logger in loggers:
        logger.log_hyperparams(settings)
        if isinstance(logger, TensorBoardLogger):
            text = yaml.safe_dump(dict(settings), sort_keys=False)
            logger.experiment.add_text("settings", f"```yaml\n{text}```", step)


def connect(
    loggers: Sequence[Any], home: Path, tags: Sequence[str] = (), group: str | None = None
) -> None:
    """Begins the wandb run, or goes on with it; offline where wandb cannot be reached.

    Args:
        loggers: of the run; others than wandb's need nothing.
        home: the run's directory, which keeps the id.
        tags: of the run, beside those that a logger was given.
        group: of the run, unless a logger was given one.

    Raises:
        UserError: where wandb knows nobody.
    """
    for logger in loggers:
        if isinstance(logger, WandbLogger):
            given = logger._wandb_init
            given["group"] = given.get("group") or group
            both = dict.fromkeys([*(given.get("tags") or ()), *tags])
            given["tags"] = [tag[:_LONGEST_TAG] for tag in both]
            _connect(logger, home / "wandb.id")


def _connect(logger: WandbLogger, kept: Path) -> None:
    import wandb

    given = logger._wandb_init
    given.pop("anonymous", None)  # Lightning hands it on, and wandb warns that it is gone
    if not given["id"]:
        if not kept.is_file():
            write_whole(kept, secrets.token_hex(4).encode())
        given["id"] = read_bytes(kept, _LONGEST_TAG).decode(errors="replace")
    try:
        _ = logger.experiment
    except wandb.errors.UsageError as error:
        hint = "run `wandb login`, or set logger.wandb.mode=offline"
        raise UserError(f"logger=wandb: {error}; {hint}") from error
    except wandb.errors.Error as error:
        wandb.teardown()  # whose service still holds the run's id
        given["mode"] = "offline"
        _ = logger.experiment
        cause = str(error).splitlines()[-1]
        print(
            f"wandb cannot be reached and logs offline, `wandb sync` sends it later: {cause}",
            file=sys.stderr,
        )
