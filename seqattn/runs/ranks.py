"""Several processes that train together: started on a run's settings, which are in a file."""

import os
import sys
from pathlib import Path
from typing import Any

import yaml
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import get_args_parser
from torch.distributed.run import run as start_ranks

from seqattn.bundle.nodes import TARGET, build
from seqattn.errors import UserError
from seqattn.runs.ending import TrainingResult
from seqattn.runs.fit import fit
from seqattn.runs.run_directory import rank
from seqattn.runs.training_options import TrainingOptions

_SETTINGS, _RESULT, _ERROR = ".settings.yaml", ".result.yaml", ".error"


def launch(run: TrainingOptions) -> TrainingResult:
    """Starts a process for each device of this machine, and waits for the result.

    Raises:
        UserError: as a rank's, or where one died.
    """
    home = Path(run.run_dir)
    (home / _SETTINGS).write_text(yaml.safe_dump(run.settings), encoding="utf-8")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))  # the user's own packages
    os.environ.setdefault(
        "OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // run.trainer.ranks))
    )
    ranks = ["--standalone", f"--nproc-per-node={run.trainer.ranks}", "--monitor-interval=0.1"]
    try:
        start_ranks(get_args_parser().parse_args([*ranks, "-m", __name__, str(home)]))
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
    settings = yaml.safe_load((home / _SETTINGS).read_text(encoding="utf-8"))
    target = f"{TrainingOptions.__module__}.{TrainingOptions.__qualname__}"
    try:
        result = fit(build({**settings, TARGET: target}))
    except UserError as error:
        (home / _ERROR).write_text(str(error), encoding="utf-8")
        return 2
    if rank() == 0:
        kept = {"monitored": result.monitored, "steps": result.steps, "scores": result.scores}
        (home / _RESULT).write_text(yaml.safe_dump(kept), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(run_rank(Path(sys.argv[1])))
