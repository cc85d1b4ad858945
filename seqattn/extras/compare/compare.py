"""Comparison of runs side by side: scores, tests, costs and what they prove."""

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar

from seqattn.checking import CountOrNone
from seqattn.errors import UserError
from seqattn.extras.compare.comparison_figures import figures_of
from seqattn.extras.compare.comparison_files import (
    as_csv,
    as_latex,
    as_markdown,
    as_page,
    cells,
    file_name,
)
from seqattn.extras.compare.comparison_tables import (
    METHODS,
    differing_sentences,
    pair_table,
    plain_table,
    system_table,
)
from seqattn.extras.compare.costs import Cost, measure_costs
from seqattn.extras.compare.run_results import ComparedRun, Reading, config_of, find_runs
from seqattn.extras.compare.system_statistics import MetricFigures, judge
from seqattn.extras.compare.systems import Systems, check_alike, check_seeds, systems_of
from seqattn.extras.pictures.plots import save
from seqattn.metrics.groups import group_summary
from seqattn.metrics.scripts import split_words
from seqattn.screen import print_table
from seqattn.settings.nodes import build
from seqattn.storage import user_path, write_whole
from seqattn.subcommands.bundle_run import Split
from seqattn.subcommands.run_tables import TableDocument
from seqattn.training.run_directory import room_for_files
from seqattn.training.task_options import task_class

Read = TypeVar("Read")
_OF_SPEED = ("accelerator", "devices", "num_nodes")
"""Settings of the trainer that change how long training takes and nothing else."""
_TIMED = 200  # sentences per round
_SENTENCES_PER_PAIR = 5  # sentences for each pair of systems
_COUNTED = 1_000_000  # training targets whose words are counted


@dataclass(frozen=True)
class Comparison:
    """Comparison of systems side by side, each with one run or several of different seeds.

    Args:
        runs: runs, folders of a multirun, or directories that an evaluation wrote.
        split: the split whose sentences are compared.
        output: directory for tables, plots, a page and all figures; None to print only.
        evaluate: evaluate runs that have no evaluation of the split or were trained since.
        group: what rows of a group share, as in `labels_of`; None for the evaluations' groups.
        unfinished: what to do with unfinished or damaged runs: error or skip.
        rounds: times that all systems decode the same sentences in turn; 0 does not measure speed.
        pool: assume equal variance over seeds in all systems: more power with few seeds, but the
            significance level holds only if the assumption does.
        device: the device that runs the models.
        trust: packages besides this one that parts of a run may come from.

    Raises:
        UserError: if there are no runs.
    """

    runs: list[str]
    split: Split = "test"
    output: str | None = None
    evaluate: bool = True
    group: str | int | None = None
    unfinished: Literal["error", "skip"] = "error"
    rounds: CountOrNone = 0
    pool: bool = False
    device: str = "cpu"
    trust: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not self.runs:
            raise UserError("runs must name at least one directory, got []")

    def run(self) -> list[MetricFigures]:
        """Read runs, evaluate where needed, compare, print, and write files if requested.

        Raises:
            UserError: if a run cannot be used, or the runs were not scored alike.
        """
        if self.output is None:
            return self._run(None)
        with room_for_files(user_path(self.output)):
            return self._run(user_path(self.output))

    def _run(self, output_dir: Path | None) -> list[MetricFigures]:
        runs = self._read()
        check_alike(runs)
        return self.compare(systems_of(runs), output_dir)[0]

    def compare(
        self, systems: Systems, output_dir: Path | None
    ) -> tuple[list[MetricFigures], dict[str, Cost]]:
        """Compare systems that were scored alike and print the result.

        Args:
            systems: one run or several for each system.
            output_dir: directory for files; None to print only.

        Returns:
            The scores by metric, the best system first, and the cost of each system.
        """
        runs = next(iter(systems.runs.values()))
        rows, results = runs[0].rows, runs[0].results
        sources = [row.source for row in rows[:_TIMED]]
        costs = measure_costs(systems.runs, sources, self.rounds, self.device, self.trust)
        judged = judge(systems.runs, self.pool)
        title = f"{len(rows):,} {results.unit} of the {results.split} split"
        if runs[0].group is not None and runs[0].labels is not None:
            title += f" in {len({*runs[0].labels}):,} groups (group={runs[0].group})"
            print(group_summary(runs[0].group, runs[0].labels), file=sys.stderr)
        words = [*(line for metric in judged for line in metric.words), *_notes(systems, self.pool)]
        tables = [
            system_table(title, results, judged, costs),
            *(pair_table(metric) for metric in judged),
        ]
        if output_dir is not None:
            self._write(output_dir, title, systems, judged, costs, words, tables)
        for table in tables:
            if table["rows"]:
                cells_by_name = {row[0]: row[1:] for row in cells(table)}
                print_table(table["title"], cells_by_name, table["columns"][1:], table["notes"])
        print(*words, sep="\n")
        return judged, costs

    def _read(self) -> list[ComparedRun]:
        reading = Reading(self.split, self.evaluate, self.device, self.trust, self.group)
        paths = list(find_runs(self.runs))
        planned = ((path, reading.settings(path)) for path in paths)
        check_seeds((path, settings) for path, settings in planned if settings)
        if self.unfinished == "error":  # before the first evaluation
            for path in paths:
                self._tried(reading.check, path)
        runs = [run for path in paths if (run := self._tried(reading.read, path))]
        if not runs:
            raise UserError("all runs were skipped (messages above)")
        return runs

    def _tried(self, read: Callable[[Path], Read], path: Path) -> Read | None:
        """Return what was read; None for a run that is skipped."""
        try:
            return read(path)
        except UserError as error:
            if self.unfinished == "error":
                raise UserError(f"{error}; or skip it with unfinished=skip") from error
            print(f"skipped: {error}", file=sys.stderr)
            return None

    def _write(
        self,
        output_dir: Path,
        title: str,
        systems: Systems,
        judged: Sequence[MetricFigures],
        costs: Mapping[str, Cost],
        words: Sequence[str],
        tables: Sequence[TableDocument],
    ) -> None:
        first = next(iter(systems.runs.values()))[0]
        counts = _word_counts(first, self.trust)
        plots, measured = figures_of(systems.runs, judged, costs, counts)
        pictures = {
            name: save(plot, output_dir / f"{file_name(name)}.png") for name, plot in plots.items()
        }
        texts = differing_sentences(systems.runs, judged, _SENTENCES_PER_PAIR)
        figures: dict[str, Any] = {
            "title": title,
            "methods": METHODS,
            "words": words,
            "runs": {name: [str(run.path) for run in runs] for name, runs in systems.runs.items()},
            "metrics": [asdict(metric) for metric in judged],
            "costs": {name: asdict(cost) for name, cost in costs.items()},
            "curves": measured,
            "differing": texts,
        }
        for name, content in {
            "table.md": as_markdown(tables),
            "table.tex": as_latex(tables),
            "table.csv": as_csv(plain_table(judged, costs)),
            "index.html": as_page(title, words, METHODS, tables, pictures, texts),
            "figures.json": json.dumps(figures, indent=1, ensure_ascii=False) + "\n",
        }.items():
            write_whole(output_dir / name, content.encode())
        print(f"written to {output_dir}", file=sys.stderr)


def _notes(systems: Systems, pool: bool) -> list[str]:
    """Return notes on the systems that a reader should know about."""
    numbers = {name: len(runs) for name, runs in systems.runs.items()}
    first = next(iter(systems.runs.values()))[0]  # all have the same references
    notes = [*systems.notes, *first.notices, *_identical(systems)]
    if pool:
        notes.append("pool=true: p is valid only if all systems have equal variance over seeds")
    trained = {
        str([run.settings.get("threads"), *map(run.settings.get("trainer", {}).get, _OF_SPEED)])
        for runs in systems.runs.values()
        for run in runs
        if run.run_dir is not None
    }
    if len(trained) > 1:
        notes.append(
            "runs used different devices or numbers of threads: training times are not comparable"
        )
    if len(set(numbers.values())) > 1:
        seeds = ", ".join(f"{name} {number}" for name, number in numbers.items())
        notes.append(f"the number of seeds differs between systems: {seeds}")
    return notes


def _identical(systems: Systems) -> list[str]:
    """Return a note for each group of systems whose runs have the same outputs."""
    groups: dict[str, list[str]] = {}
    for name, runs in systems.runs.items():
        outputs = [[str(run.seed), [row.output for row in run.rows]] for run in runs]
        groups.setdefault(json.dumps(sorted(outputs)), []).append(name)
    return [
        f"{', '.join(names)} gave identical outputs for every sentence: what distinguishes them "
        "may have no effect on this data"
        for names in groups.values()
        if len(names) > 1
    ]


def _word_counts(run: ComparedRun, trust: Sequence[str]) -> Mapping[str, int] | None:
    """Return word counts of a run's first training targets, or None if they cannot be read."""
    if run.run_dir is None or run.bundle is None:
        return None
    try:
        config = config_of(run.bundle, trust)
        source = task_class(config).source(build(config["data"], "data"))
        if source.yields != "pairs":
            return None
        print(f"counting words in {source.origin('train')}", file=sys.stderr)
        pairs = islice(source.stream("train"), _COUNTED)
        return Counter(word for _, target in pairs for word in split_words(target))
    except UserError as error:
        print(f"no plot by word frequency: {error}", file=sys.stderr)
        return None
