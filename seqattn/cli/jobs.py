"""Summary of a multirun's jobs, one line per job, on the screen and in a file."""

import os
import signal
import sys
import threading
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override, RangeSweep
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig

from seqattn.errors import UserError
from seqattn.inputs import read_json, read_yaml
from seqattn.processes import HANGUP, leave_closed_terminal
from seqattn.settings.documents import SCORES
from seqattn.storage import write_whole
from seqattn.training.ranks import rank

NAME, SWEEP = "jobs.tsv", "multirun.yaml"
_LARGEST, _SLOW = 10_000, 20  # jobs that are run at all, and that take seconds to compose


class Jobs(Callback):
    """Record the folder of a multirun before the first job, and announce each job."""

    keys: tuple[str, ...] = ()
    """Keys with several values, each with its `=`."""
    total: int | None = None
    """Number of jobs, if it is known."""
    path: ClassVar[Path | None] = None
    elsewhere: ClassVar[bool] = True
    """True if jobs may run in other processes, or a sweeper may read their results."""
    interrupted: ClassVar[dict[int, Any]] = {}
    """Previous handlers of signals that were changed."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Record the folder, and handle signals with joblib; Hydra calls it."""
        Jobs.path = Path(config.hydra.sweep.dir)
        words = OverridesParser.create().parse_overrides([*config.hydra.overrides.task])
        swept = [word for word in words if word.is_sweep_override()]
        self.keys = tuple(f"{word.get_key_element()}=" for word in swept)
        discrete = (
            word.is_discrete_sweep() and not isinstance(word.value(), Glob) for word in swept
        )
        if all(discrete) and "BasicSweeper" in config.hydra.sweeper._target_:
            self.total = prod(map(_count, swept))
            if self.total > _LARGEST:
                line = (
                    f"error: -m has more than {_LARGEST:,} jobs; use fewer values, or hydra/sweeper"
                )
                print(line, file=sys.stderr)
                raise SystemExit(2)  # Hydra only warns of other exceptions of a callback
            if self.total > _SLOW:
                print(f"composing the settings of {self.total:,} jobs ...", file=sys.stderr)
        basic = (config.hydra.sweeper._target_, config.hydra.launcher._target_)
        Jobs.elsewhere = not ("BasicSweeper" in basic[0] and "BasicLauncher" in basic[1])
        in_main_thread = threading.current_thread() is threading.main_thread()
        if in_main_thread and "joblib" in config.hydra.launcher._target_:
            ending = [
                number
                for number in (signal.SIGINT, signal.SIGTERM, HANGUP)
                if signal.getsignal(number) != signal.SIG_IGN
            ]
            Jobs.interrupted = {number: signal.signal(number, _leave) for number in ending}

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Print the job's number and what distinguishes it; Hydra calls it."""
        if config.hydra.mode != RunMode.MULTIRUN or rank() > 0:
            return
        number, words = config.hydra.job.num, config.hydra.overrides.task
        of = f" ({number + 1} of {self.total})" if self.total else ""
        text = " ".join(word for word in words if word.startswith(self.keys)) if self.keys else ""
        print(f"job {number}{of}: {text}".rstrip(": "), file=sys.stderr, flush=True)


def _count(word: Override) -> int:
    """Return the number of values of a key, counted up to the largest number of jobs."""
    value = word.value()
    values = value.range() if isinstance(value, RangeSweep) else word.sweep_iterator()
    return sum(1 for _ in islice(values, _LARGEST + 1))


def _leave(number: int, frame: object) -> NoReturn:
    """End an interrupted command before joblib kills its processes, so that they can save."""
    leave_closed_terminal()
    report_jobs()
    print("stopped", file=sys.stderr, flush=True)
    os._exit(128 + number)


def report_jobs() -> None:
    """Print and write a line for each job of the last multirun, if any."""
    folder, Jobs.path = Jobs.path, None
    handlers, Jobs.interrupted = Jobs.interrupted, {}
    for number, handler in handlers.items():
        signal.signal(number, handler)
    if folder is None:
        return
    runs = {run.name: run for run in sorted(_runs_in(folder), key=lambda run: int(run.name))}
    scores = {name: _read(run / "model" / SCORES, dict) for name, run in runs.items()}
    scores = {
        name: {key: value for key, value in row.items() if type(value) is float}
        for name, row in scores.items()
        if row
    }
    if not scores:
        return
    words = {
        name: [str(word) for word in _read(runs[name] / "overrides.yaml", list)] for name in scores
    }
    from seqattn.screen import print_table  # Rich and Lightning take a moment to import
    from seqattn.training.progress import score_text

    shared = set.intersection(*map(set, words.values())) if len(words) > 1 else set()
    # jobs may have different tasks or scored splits
    figures = list(dict.fromkeys(key for row in scores.values() for key in row))
    best = _best([_read(runs[name] / "config.yaml", dict) for name in scores], scores)
    lines = {
        f"{name} best" if name == best else name: [
            " ".join(word for word in words[name] if word not in shared),
            *(score_text(key, row[key], ".4g") if key in row else "" for key in figures),
        ]
        for name, row in scores.items()
    }
    print_table(str(folder), lines, ["overrides", *figures])
    rows = [["job", "best", "overrides", *figures]]
    for (name, row), line in zip(scores.items(), lines.values(), strict=True):
        rows.append(
            [name, "best" * (name == best), line[0], *(str(row.get(key, "")) for key in figures)]
        )
    write_whole(folder / NAME, "".join("\t".join(row) + "\n" for row in rows).encode())
    print(f"written to {folder / NAME}", file=sys.stderr)


def _runs_in(parent: Path) -> list[Path]:
    """Return the folders of jobs, whose names are numbers."""
    entries = parent.iterdir() if parent.is_dir() else ()
    return [folder for folder in entries if folder.name.isdecimal()]


def _read(file: Path, kind: type[Any]) -> Any:
    """Read the list or dict in a file of a run, empty without the file.

    Raises:
        UserError: if it has another type.
    """
    if not file.is_file():
        return kind()
    content = read_json(file, "JSON") if file.suffix == ".json" else read_yaml(file)
    if not isinstance(content, kind):
        raise UserError(f"cannot read {file}; remove its run, or choose another run_dir")
    return content


def _best(configs: list[dict[str, Any]], scores: dict[str, Any]) -> str | None:
    """Return the best job by the monitored metric, if it is the same for all jobs."""
    from seqattn.settings.nodes import build
    from seqattn.training.task_options import mode_of

    nodes = [config.get("checkpoint") for config in configs]
    monitors = {
        str(node.get("monitor", "val/loss")) if isinstance(node, dict) else "val/loss"
        for node in nodes
    }
    if len(monitors) > 1:
        return None  # metrics differ
    [monitor] = monitors
    scorer = build(configs[0].get("task", {}).get("scorer"), "task.scorer")
    better = min if mode_of(monitor, scorer) == "min" else max
    values = {name: row[monitor] for name, row in scores.items() if monitor in row}
    return better(values, key=lambda name: values[name]) if values else None
