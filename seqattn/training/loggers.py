"""Loggers that resume with a run, as one CSV file, TensorBoard, wandb or MLflow run."""

import csv
import io
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.pytorch.loggers import Logger, MLFlowLogger, TensorBoardLogger, WandbLogger
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor

from seqattn.errors import UserError
from seqattn.inputs import csv_rows, read_bytes
from seqattn.installation import install
from seqattn.screen import say
from seqattn.storage import write_whole
from seqattn.training.run_logger import RunLogger

_LONGEST_TAG = 64
"""Maximum length that wandb accepts, in characters."""


class CSVFile(RunLogger, Logger):
    """One CSV file for a whole run, which Lightning's logger would overwrite on resuming.

    Each row is written immediately.

    Args:
        save_dir: directory of the run.
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
        """Append a row, or rewrite the file if there are new columns."""
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
        """Write the parameters beside the CSV file."""
        self._folder.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(dict(params), sort_keys=False)
        write_whole(self._folder / "hparams.yaml", text.encode())

    def resume(self, step: int) -> None:
        """Drop rows from this step on, and an incomplete one."""
        rows = [row for row in csv_rows(self._file) if float(row.get("step") or "inf") < step]
        if rows:
            self._write(rows)
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


class TensorBoardRun(RunLogger, TensorBoardLogger):
    """Lightning's TensorBoard logger, with texts and figures."""

    def resume(self, step: int) -> None:
        self.experiment.close()  # new events hide these steps in TensorBoard
        self.experiment.purge_step = step

    def log_settings(self, settings: Mapping[str, Any], step: int) -> None:
        self.log_hyperparams(settings)
        text = yaml.safe_dump(dict(settings), sort_keys=False)
        self.experiment.add_text("settings", f"```yaml\n{text}```", step)

    def show_table(self, name: str, rows: Sequence[Sequence[str]], step: int) -> None:
        self.experiment.add_text(name, _markdown(rows), step)

    def show_figure(self, name: str, figure: Any, step: int) -> None:
        self.experiment.add_figure(name, figure, step)

    def show_histogram(self, name: str, values: Tensor, step: int) -> None:
        self.experiment.add_histogram(name, values, step)

    def log_scores(
        self, scores: Mapping[str, float], settings: Mapping[str, Any], step: int
    ) -> None:
        self.log_hyperparams(settings, scores, step)  # for its HPARAMS page


def _markdown(table: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown, each cell on one line."""
    rows = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in table]
    rows.insert(1, ["---"] * len(rows[0]))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


class WandbRun(RunLogger, WandbLogger):
    """Lightning's wandb logger, with artifacts.

    Args:
        artifacts: True to store the bundle, and the report if there is one, at the end.
        **options: as for Lightning's logger.
    """

    def __init__(self, artifacts: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.artifacts, self.options = artifacts, options
        self._run: Any = None

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """The wandb run, available after `open`."""
        return self._run

    def open(self, run_dir: Path, tags: Sequence[str], group: str | None) -> None:
        """Start or resume the wandb run, offline if wandb cannot be reached.

        Raises:
            UserError: if there is no login for wandb.
        """
        import wandb

        settings, id_file = self.options, run_dir / "wandb.id"
        if not id_file.is_file():
            write_whole(id_file, secrets.token_hex(4).encode())
        own = read_bytes(id_file, _LONGEST_TAG).decode(errors="replace")
        both = dict.fromkeys([*(settings.get("tags") or ()), *tags])
        options = {
            "id": settings.get("version") or settings.get("id") or own,
            "group": settings.get("group") or group,
            "tags": [tag[:_LONGEST_TAG] for tag in both],
        } | ({"mode": "offline"} if settings.get("offline") else {})
        try:
            self._begin(options)
        except wandb.errors.UsageError as error:
            hint = "run `wandb login` or set logger.wandb.mode=offline"
            raise UserError(f"logger=wandb: {error}; {hint}") from error
        except wandb.errors.Error as error:
            wandb.teardown()  # its service still holds the run's id
            self._begin(options | {"mode": "offline"})
            cause = str(error).splitlines()[-1]
            say(f"cannot reach wandb ({cause}); logging offline, upload later with `wandb sync`")

    def _begin(self, options: Mapping[str, Any]) -> None:
        """Start or resume the run. Args: options: for `wandb.init`, overriding this logger's."""
        import wandb

        own = {*signature(WandbLogger.__init__).parameters} - {"name", "project", "id"}
        init_options = {name: value for name, value in self.options.items() if name not in own}
        folder = {"dir": self.save_dir, "resume": "allow"}
        self._run = wandb.init(**{**folder, **init_options, **options})
        self._run.define_metric("trainer/global_step")  # Lightning's name of the step
        self._run.define_metric("*", step_metric="trainer/global_step", step_sync=True)

    def show_table(self, name: str, rows: Sequence[Sequence[str]], step: int) -> None:
        header, *others = map(list, rows)
        self.log_table(name, header, others, step=step)

    def show_figure(self, name: str, figure: Any, step: int) -> None:
        self.log_image(name, [figure], step=step)

    def show_histogram(self, name: str, values: Tensor, step: int) -> None:
        import wandb

        counts = np.histogram(values.numpy(), bins=64)
        self.log_metrics({name: wandb.Histogram(np_histogram=counts)}, step)

    def keep(self, path: Path, kind: str, aliases: Sequence[str]) -> None:
        """Store a file or a directory as an artifact, if it exists and `artifacts` is true.

        Args:
            path: path of the file or directory.
            kind: type of the artifact, such as model; its name is the kind and the run's id.
            aliases: aliases of this version, besides latest.
        """
        if not self.artifacts or not path.exists():
            return
        import wandb

        artifact = wandb.Artifact(f"{kind}-{self.experiment.id}", type=kind)
        (artifact.add_dir if path.is_dir() else artifact.add_file)(str(path))
        self.experiment.log_artifact(artifact, aliases=list(aliases))

    def close(self) -> None:
        super().close()
        if self.experiment.settings.mode == "online":
            say(f"wandb: {self.experiment.url}")
        self.experiment.finish()  # or the next job of a sweep would resume this one


class MLflowRun(RunLogger, MLFlowLogger):
    """Lightning's MLflow logger, with figures.

    Args:
        save_dir: directory of the run, whose file mlflow.id keeps MLflow's id.
        **options: as for Lightning's logger.
    """

    def __init__(self, save_dir: str, **options: Any) -> None:
        self._id_file = Path(save_dir, "mlflow.id")
        self._resumed = self._id_file.is_file()
        if self._resumed:
            options["run_id"] = read_bytes(self._id_file, _LONGEST_TAG).decode(errors="replace")
        try:
            super().__init__(**options)
        except ModuleNotFoundError as error:
            raise UserError(f"logger=mlflow needs mlflow; {install('mlflow')}") from error

    def open(self, run_dir: Path, tags: Sequence[str], group: str | None) -> None:
        """Start or resume the MLflow run; tags are the choices by group."""
        self.tags = {**(self.tags or {}), **dict(tag.split("=", 1) for tag in tags)}
        self.tags |= {"sweep": group} if group else {}
        write_whole(self._id_file, str(self.run_id).encode())

    def log_settings(self, settings: Mapping[str, Any], step: int) -> None:
        if not self._resumed:  # MLflow refuses changes
            self.log_hyperparams(dict(settings))

    def show_figure(self, name: str, figure: Any, step: int) -> None:
        self.experiment.log_figure(self.run_id, figure, f"{name}/{step}.png")


def made_loggers(makers: Mapping[str, Callable[..., Any]]) -> list[Any]:
    """Build Lightning loggers. Args: makers: functions that build one, by any names.

    Raises:
        UserError: if one needs a package that is not installed.
    """
    try:
        return [make() for make in makers.values()]
    except ImportError as error:  # some of Lightning's need extra packages
        raise UserError(f"logger: {error}") from error
