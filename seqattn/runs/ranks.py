"""Several processes that train together: started on a run's settings, which are in a file."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from seqattn.errors import UserError

if TYPE_CHECKING:
    from seqattn.runs.train import Training, TrainingResult

_SETTINGS, _RESULT, _ERROR = ".settings.yaml", ".result.yaml", ".error"


def launch(run: "Training") -> "TrainingResult":
    """Starts a process for each device of this machine, and waits for the result.

    Raises:
        UserError: as a rank's, or where one died.
    """
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from seqattn.runs.train import TrainingResult

    home = Path(run.run_dir)
    (home / _SETTINGS).write_text(yaml.safe_dump(run.settings), encoding="utf-8")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))  # the user's own packages
    os.environ.setdefault(
        "OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // run.trainer.ranks))
    )
    plan = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=run.trainer.ranks,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        run_id=home.name,
        max_restarts=0,
        monitor_interval=0.1,
    )
    try:
        elastic_launch(plan, sys.executable)("-m", "seqattn.runs.ranks", str(home))
        found: dict[str, Any] = yaml.safe_load((home / _RESULT).read_text(encoding="utf-8"))
        return TrainingResult(home, home / "model", **found)
    except ChildFailedError as error:
        told = home / _ERROR
        text = told.read_text(encoding="utf-8") if told.is_file() else "a rank died, see above"
        raise UserError(text) from error
    finally:
        for name in (_SETTINGS, _RESULT, _ERROR):
            (home / name).unlink(missing_ok=True)


def run_rank(home: Path) -> int:
    """Trains as one of several processes; returns its exit code."""
    from seqattn.runs.fit import fit
    from seqattn.runs.search import from_settings
    from seqattn.runs.train import Training

    settings = yaml.safe_load((home / _SETTINGS).read_text(encoding="utf-8"))
    try:
        result = fit(from_settings(Training, settings))
    except UserError as error:
        (home / _ERROR).write_text(str(error), encoding="utf-8")
        return 2
    if result.scores:
        kept = {"monitored": result.monitored, "steps": result.steps, "scores": result.scores}
        (home / _RESULT).write_text(yaml.safe_dump(kept), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(run_rank(Path(sys.argv[1])))
