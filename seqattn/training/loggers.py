"""Loggers that go on with a run: one file of figures, one TensorBoard run, one wandb run."""

import csv
import io
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import Any

import yaml
from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.pytorch.loggers import Logger, TensorBoardLogger, WandbLogger
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor

from seqattn.errors import UserError
from seqattn.inputs import csv_rows, read_bytes
from seqattn.storage import write_whole

_LONGEST_TAG = 64
"""Characters that wandb takes."""


class CSVFile(Logger):
    """One file of figures for all of a run, where Lightning's begins it anew; each row is written
    at once.

    Args:
        save_dir: the run's directory.
    """

    name, version = "csv", 0

    def __init__(self, save_dir: str) -> None:
        super().__init__()
        self._folder = Path(save_dir, self.name, f"version_{self.version}")
        self._file = self._folder / "metrics.csv"

    @cached_property
    def _columns(self) -> list[str]:
        return sorted({key for row in csv_rows(self._file) for key in row})

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Appends a row, or writes the file anew where it gets new columns."""
        row = {name: x.item() if isinstance(x, Tensor) else x for name, x in metrics.items()}
        row["step"] = step
        if row.keys() <= set(self._columns):
            with self._file.open("a", encoding="utf-8", newline="") as file:
                csv.DictWriter(file, self._columns).writerow(row)
        else:
            self._columns = sorted({*self._columns, *row})
            self._write([*csv_rows(self._file), row])

    @rank_zero_only
    def log_hyperparams(self, params: Any) -> None:
        """Writes them beside the figures."""
        self._folder.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(dict(params), sort_keys=False)
        write_whole(self._folder / "hparams.yaml", text.encode())

    def keep_before(self, step: int) -> None:
        """Takes away the rows of this step and later ones, and one that was cut."""
        kept = [row for row in csv_rows(self._file) if float(row.get("step") or "inf") < step]
        if kept:
            self._write(kept)
        else:
            self._file.unlink(missing_ok=True)
            self._columns = []

    def _write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, self._columns)
        writer.writeheader()
        writer.writerows(rows)
        self._folder.mkdir(parents=True, exist_ok=True)
        write_whole(self._file, text.getvalue().encode())


class WandbRun(WandbLogger):
    """Lightning's log to wandb, which can keep files of a run beside its figures.

    Args:
        artifacts: whether the bundle, and the report where there is one, are kept in the end.
        **options: as of Lightning's.
    """

    def __init__(self, artifacts: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.artifacts, self.options = artifacts, options
        self._run: Any = None

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """The run of wandb, once it is connected."""
        return self._run

    def connect(self, **options: Any) -> None:
        """Begins the run, or resumes it. Args: options: of `wandb.init`, before this logger's."""
        import wandb

        own = {*signature(WandbLogger.__init__).parameters} - {"name", "project", "id"}
        given = {name: value for name, value in self.options.items() if name not in own}
        folder = {"dir": self.save_dir, "resume": "allow"}
        self._run = wandb.init(**{**folder, **given, **options})
        self._run.define_metric("trainer/global_step")  # by which Lightning names a step
        self._run.define_metric("*", step_metric="trainer/global_step", step_sync=True)

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
            logger.keep_before(step)
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
        loggers: of the run; others than `WandbRun` need nothing.
        home: the run's directory, which keeps the id.
        tags: of the run, beside those that a logger was given.
        group: of the run, unless a logger was given one.

    Raises:
        UserError: where wandb knows nobody.
    """
    for logger in loggers:
        if isinstance(logger, WandbRun):
            _connect(logger, home / "wandb.id", tags, group)


def _connect(logger: WandbRun, kept: Path, tags: Sequence[str], group: str | None) -> None:
    import wandb

    given = logger.options
    if not kept.is_file():
        write_whole(kept, secrets.token_hex(4).encode())
    own = read_bytes(kept, _LONGEST_TAG).decode(errors="replace")
    both = dict.fromkeys([*(given.get("tags") or ()), *tags])
    options = {
        "id": given.get("version") or given.get("id") or own,
        "group": given.get("group") or group,
        "tags": [tag[:_LONGEST_TAG] for tag in both],
    } | ({"mode": "offline"} if given.get("offline") else {})
    try:
        logger.connect(**options)
    except wandb.errors.UsageError as error:
        hint = "run `wandb login`, or set logger.wandb.mode=offline"
        raise UserError(f"logger=wandb: {error}; {hint}") from error
    except wandb.errors.Error as error:
        wandb.teardown()  # whose service still holds the run's id
        logger.connect(**options | {"mode": "offline"})
        cause = str(error).splitlines()[-1]
        print(
            f"wandb cannot be reached and logs offline, `wandb sync` sends it later: {cause}",
            file=sys.stderr,
        )
