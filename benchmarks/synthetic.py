"""Accuracy by length of many mechanisms on the synthetic tasks: a run for each task, row and seed.

    python -m benchmarks.synthetic --output DIR [--jobs 16] [--rows mha "[linear,mha]"] [WORDS ...]

A row is one of `ROWS`, any other choice or list for `attention=`, or settings such as
"attention@encoder_attention=xca position=none". WORDS go to every training. A run is
DIR/TASK/ROW/SEED, its output SEED.log. Repeat the command to continue: finished runs are only read.
DIR/table.md, DIR/accuracy.png and DIR/distance.png are written after each. To test rows against
each other: `seqattn compare runs=[DIR/copy/mha,DIR/copy/linear]`.
"""

import argparse
import contextlib
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import as_completed
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from seqattn.processes import worker_deaths, worker_pool

ROWS = {
    "sliding_window": ["attention=sliding_window", "attention.kernel.window=4"],
    "strided": ["attention=strided", "attention.kernel.stride=8"],
    "fixed": ["attention=fixed", "attention.kernel.stride=8", "attention.kernel.summary=2"],
    "lsh": ["attention@encoder_attention=lsh", "encoder_attention.kernel.bucket_size=8"],
    "ssru": ["attention=ssru", "position=none"],
    "mamba2": ["attention=mamba2", "position=none"],
    "gated_deltanet": ["attention=gated_deltanet", "position=none"],
    "retnet": ["attention=retnet", "position=none"],
    "rwkv7": ["attention=rwkv7", "position=none"],
    "rnn without attention": ["model=rnn", "attention=none", "position=none"],
    "rnn with bahdanau": ["model=rnn", "attention=bahdanau", "position=none"],
}
"""Settings of rows that need more than `attention=ROW`; spans are shorter than the sequences."""
DEFAULT = ["mha", "mqa", "moa", "entmax", "linear", "performer", "[mamba2,mha]", *ROWS]
DISTANCE = ("rnn without attention", "rnn with bahdanau", "mha")
"""Rows of the picture of information at a distance."""
METRIC = "symbol accuracy"


class Cell(NamedTuple):
    """A training."""

    task: str
    row: str
    seed: int

    def run_dir(self, output: Path) -> Path:
        return output / self.task / re.sub(r"[^\w+]+", "_", self.row).strip("_") / str(self.seed)

    def words(self) -> list[str]:
        own = self.row.split() if "=" in self.row else [f"attention={self.row}"]
        row = ROWS.get(self.row, own)
        return [f"experiment=synthetic_{self.task}", *row, f"seed={self.seed}"]


class Result(NamedTuple):
    """Accuracy by words of the source, longest source in training, parameters and seconds."""

    accuracy: dict[int, float]
    trained: int
    parameters: int
    seconds: float


def run(cell: Cell, output: Path, device: str, words: Sequence[str]) -> Result | str:
    """Train and evaluate unless finished; return the last line of the log if that fails."""
    from seqattn.cli.main import run_subcommand
    from seqattn.errors import UserError
    from seqattn.extras.compare.costs import measure_costs
    from seqattn.extras.compare.run_results import Reading

    path = cell.run_dir(output)
    path.parent.mkdir(parents=True, exist_ok=True)
    log = path.with_suffix(".log")
    with (
        log.open("w", encoding="utf-8") as file,
        contextlib.redirect_stdout(file),
        contextlib.redirect_stderr(file),
    ):
        code = run_subcommand("train", [*cell.words(), *words, f"run_dir={path}"])
    if code:
        return log.read_text("utf-8").strip().rpartition("\n")[2]
    with log.open("a", encoding="utf-8") as file, contextlib.redirect_stderr(file):
        try:
            one = Reading("test", True, device, ()).read(path)
        except UserError as error:
            return str(error)
        cost = measure_costs({"": [one]}, (), 0, "cpu", ())[""]
    numbers = dict[int, list[int]]()
    for number, row in enumerate(one.rows):
        numbers.setdefault(len(row.source.split()), []).append(number)
    counts = one.sentences[METRIC]
    accuracy = {
        length: counts.compute(counts.counts[rows].sum(0).tolist())
        for length, rows in sorted(numbers.items())
    }
    trained = int(one.settings["data"]["length"])
    return Result(accuracy, trained, cost.parameters or 0, cost.training_seconds or 0.0)


def write(results: Mapping[Cell, Result], output: Path) -> str:
    """Write the pictures and the table of all finished cells; return the table."""
    from seqattn.extras.compare.comparison_plots import Point, band_panels
    from seqattn.extras.compare.seed_statistics import seed_interval
    from seqattn.extras.pictures.plots import save

    title = f"{METRIC.capitalize()} by words of the source, 95 % intervals over seeds"
    lines, trained = [f"{title}.", ""], dict[str, int]()
    panels = dict[str, dict[str, list[Point]]]()
    for task in dict.fromkeys(cell.task for cell in results):
        rows = dict[str, list[Result]]()
        for cell, result in results.items():
            if cell.task == task:
                rows.setdefault(cell.row, []).append(result)
                trained[task] = result.trained
        panels[task] = {row: [] for row in rows}
        lengths = [*next(iter(rows.values()))[0].accuracy]
        for row, some in rows.items():
            for length in lengths:
                values = [one.accuracy[length] for one in some]
                low, high = seed_interval(values) or (None, None)
                if low is not None and high is not None:
                    low, high = max(0.0, low), min(100.0, high)
                panels[task][row].append(Point(length, mean(values), low, high))
        named = [f"{n} (beyond training)" if n > trained[task] else str(n) for n in lengths]
        lines += [f"### {task}", "", _line("mechanism", *named, "parameters", "seconds", "seeds")]
        lines.append(_line("---", *["---:"] * (len(lengths) + 3)))
        for row in sorted(rows, key=lambda row: -mean(point.mean for point in panels[task][row])):
            some, figures = rows[row], [*map(_written, panels[task][row])]
            seconds = f"{mean(one.seconds for one in some):.0f}"
            lines.append(_line(row, *figures, f"{some[0].parameters:,}", seconds, str(len(some))))
        lines.append("")
    (output / "table.md").write_text("\n".join(lines), encoding="utf-8")
    for name, shown in (("accuracy", None), ("distance", DISTANCE)):
        drawn = {
            task: {row: points for row, points in some.items() if not shown or row in shown}
            for task, some in panels.items()
        }
        if all(drawn.values()):
            figure = band_panels(drawn, title, "words of the source; dashed: longest in training")
            for axes, task in zip(figure.axes, drawn, strict=True):
                axes.set(title=task, ylabel=METRIC, ylim=(-2, 102))
                axes.axvline(trained[task], color="0.6", ls="--", lw=1, zorder=0)
            save(figure, output / f"{name}.png")
    return "\n".join(lines)


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _written(point: Any) -> str:
    spread = "" if point.low is None else f" [{point.low:.1f}, {point.high:.1f}]"
    return f"{point.mean:.1f}{spread}"


def main(arguments: Sequence[str]) -> int:
    """Run the study and return the exit code, 1 if a run failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", help="settings of every training")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1, help="trainings at once")
    parser.add_argument("--tasks", nargs="+", default=["copy", "recall"])
    parser.add_argument("--rows", nargs="+", default=DEFAULT)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--device", default="cpu", help="of the evaluation")
    given = parser.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = "1"
    cells = [Cell(*one) for one in product(given.tasks, given.rows, given.seeds)]
    cells.sort(key=lambda cell: cell.seed)  # a table of one seed first
    results, failed, start = dict[Cell, Result](), 0, time.monotonic()
    with (
        worker_deaths("repeat the command with fewer --jobs"),
        worker_pool(given.jobs, "spawn") as pool,
    ):
        jobs = {
            pool.submit(run, cell, given.output, given.device, given.words): cell for cell in cells
        }
        for number, job in enumerate(as_completed(jobs), 1):
            cell, result = jobs[job], job.result()
            if isinstance(result, str):
                failed, said = failed + 1, result
            else:
                results[cell] = result
                ordered = sorted(results, key=lambda cell: given.rows.index(cell.row))
                table = write({cell: results[cell] for cell in ordered}, given.output)
                said = " ".join(f"{n}: {value:.1f}" for n, value in result.accuracy.items())
            clock = time.monotonic() - start
            print(
                f"{clock:.0f} s, {number}/{len(cells)}: {' '.join(map(str, cell))}: {said}",
                flush=True,
            )
    print(table if results else "", f"written to {given.output}", sep="\n")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
