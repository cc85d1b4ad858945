"""Runs of a comparison: find, evaluate and read them."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from annotated_types import MinLen
from pydantic import BaseModel, FiniteFloat, ValidationError

from seqattn.bundle.files import part_of, read_config
from seqattn.errors import UserError
from seqattn.inputs import LARGEST, limited_lines, opened, read_bytes
from seqattn.metrics.groups import labels_of
from seqattn.metrics.several import check_sentences, one_scorer
from seqattn.metrics.significance import SentenceCounts
from seqattn.metrics.text import lower_is_better, scorer_notices
from seqattn.settings.choices import types_at
from seqattn.settings.data_paths import with_paths
from seqattn.settings.documents import WEIGHTS, Config
from seqattn.settings.nodes import TARGET, Node, build, build_subcommand, replace_marks
from seqattn.storage import file_faults, is_file, user_path
from seqattn.subcommands.bundle_run import Split
from seqattn.subcommands.evaluate import SENTENCES
from seqattn.subcommands.provenance import contents_now
from seqattn.training.resume import RESULT, settings_before

_SCORES, _CONFIG = "scores.json", "config.yaml"
_EVALUATE = "seqattn.subcommands.evaluate.Evaluation"


class Score(BaseModel):
    """Score and the properties that two comparable scores must share."""

    value: FiniteFloat
    signature: str = ""


class Results(BaseModel):
    """Contents of an evaluation's scores.json."""

    bundle: str
    split: str
    unit: str = "sentences"
    data: str
    scores: dict[str, Score]
    generation: dict[str, Any]
    scorer: dict[str, Any] | list[dict[str, Any]]
    ensemble: list[str] = []
    rerank: dict[str, Any] | None = None
    made_from: dict[str, list[str]] = {}
    group: str | int | None = None
    notes: list[str] = []


class Row(BaseModel):
    """Row of the split and a model's output for it."""

    source: str
    references: Annotated[list[str], MinLen(1)]
    output: str
    group: str | None = None


@dataclass(frozen=True)
class ComparedRun:
    """Evaluation and the run that it belongs to.

    Args:
        path: name of the run in messages.
        run_dir: the run's directory; None if only its evaluation is known.
        settings: settings of the run, with the search of the evaluation.
        results, rows: contents of the evaluation.
        sentences: metrics per sentence.
        notices: notes on what the scorer cannot measure, and on rows that depend on each other.
        group, labels: what groups the rows, and the label of each; None for independent rows.
    """

    path: Path
    run_dir: Path | None
    settings: Mapping[str, Any]
    results: Results
    rows: Sequence[Row]
    sentences: Mapping[str, SentenceCounts]
    notices: Sequence[str] = ()
    group: str | int | None = None
    labels: Sequence[str] | None = None

    @property
    def seed(self) -> object:
        """Seed of the run; None if unknown."""
        return self.settings.get("seed")

    @property
    def bundle(self) -> Path | None:
        """Path of the model; None if it is missing or the evaluation used other models."""
        path = user_path(self.results.bundle) if self.run_dir is None else self.run_dir / "model"
        is_single = not self.results.ensemble and self.results.rerank is None
        return path if is_single and (path / WEIGHTS).is_file() else None


@dataclass(frozen=True)
class Reading:
    """Options for reading runs.

    Args:
        split: the evaluated split.
        evaluate: evaluate a run that has no evaluation or was trained since.
        device: device of the evaluation.
        trust: packages that parts of a run may come from.
        group: as in `Comparison`.
    """

    split: Split
    evaluate: bool
    device: str
    trust: Sequence[str]
    group: str | int | None = None

    def read(self, path: Path) -> ComparedRun:
        """Read a run or an evaluation's directory.

        Raises:
            UserError: if it is neither, unfinished or damaged.
        """
        if is_file(path / _SCORES) and is_file(path / SENTENCES):
            results = _results(path)
            bundle = user_path(results.bundle)
            run = bundle.parent
            if bundle.name != "model" or not is_file(run / _CONFIG):  # not a run's own model
                return self._evaluated(path, path, None, {"bundle": results.bundle})
            return self._evaluated(path, path, run, settings_before(run, str(run)))
        self.check(path)
        settings = settings_before(path, str(path))
        directory = path / "evaluation" / self.split
        if not self._is_there(directory, path / "model"):
            self._evaluate(path, settings.get("cache_dir"))
        return self._evaluated(path, directory, path, settings)

    def check(self, path: Path) -> None:
        """Raise the errors of `read` that need no evaluation, such as an unfinished run."""
        if is_file(path / _SCORES) and is_file(path / SENTENCES):
            return
        if is_file(path / WEIGHTS):
            raise UserError(f"{path} is a bundle; use its run, {path.parent}")
        if not is_file(path / _CONFIG):
            hint = f": {SENTENCES} is missing; evaluate again" * is_file(path / _SCORES)
            raise UserError(f"{path} is not a run, multirun or evaluation{hint}")
        settings_before(path, str(path))
        if not is_file(path / RESULT) or not is_file(path / "model" / WEIGHTS):
            raise UserError(f"{path} is not finished; continue it with resume={path}")

    def settings(self, path: Path) -> Mapping[str, Any] | None:
        """Return what tells a run from others before it is evaluated; None if that is unknown.

        Raises:
            UserError: if its scorer cannot be compared.
        """
        if not is_file(path / RESULT) or is_file(path / _SCORES):
            return None
        try:
            config = config_of(path / "model", self.trust)
            generation = part_of(config, "generation", path)
            scorer = one_scorer(build(part_of(config, "task.scorer", path), "task.scorer"))
            settings = settings_before(path, str(path))
        except UserError:  # of `read`
            return None
        check_sentences(scorer, "compare")
        return {**settings, "generation": generation}

    def _is_there(self, directory: Path, bundle: Path) -> bool:
        """Return True if a directory holds an evaluation of a bundle, a current one if required."""
        if not is_file(directory / SENTENCES):
            return False
        results = _results(directory)
        if Path(results.bundle).name != bundle.name or not self._has_labels(results):
            return False
        now = contents_now(bundle, map(Path, results.made_from.keys() - {"bundle"}))
        stale = [name for name, content in now.items() if results.made_from.get(name) != content]
        if stale and not self.evaluate:
            what = f"{directory} is out of date: {' and '.join(stale)} changed"
            print(f"{what}; using it anyway", file=sys.stderr)
        return not (stale and self.evaluate)

    def _has_labels(self, results: Results) -> bool:
        """Return True unless rows are to be grouped by a column that an evaluation did not read."""
        if self.group is None or labels_of(self.group, ()) is not None:
            return True
        return str(results.group) == str(self.group)

    def _evaluate(self, run_dir: Path, cache_dir: str | None) -> None:
        bundle = run_dir / "model"
        if not self.evaluate:
            how = f"split={self.split}" + f" group={self.group}" * (self.group is not None)
            raise UserError(
                f"{run_dir} has no evaluation of {how}; set evaluate=true, or run "
                f"seqattn evaluate bundle={bundle} {how}"
            )
        print(f"evaluating {bundle} on {self.split}", file=sys.stderr)
        config = config_of(bundle, self.trust)
        settings = {
            "bundle": str(bundle),
            "device": self.device,
            "trust": list(self.trust),
            "data": config["data"],
            "generation": part_of(config, "generation", bundle),
            "scorer": part_of(config, "task.scorer", bundle),
            "split": self.split,
            "cache_dir": cache_dir,
            "group": self.group,
        }
        build_subcommand(_EVALUATE, settings).run(silent=True)

    def _evaluated(
        self, path: Path, directory: Path, run_dir: Path | None, settings: Mapping[str, Any]
    ) -> ComparedRun:
        results = _results(directory)
        file = directory / SENTENCES
        rows = _rows(file)
        scorer = one_scorer(trusted(results.scorer, "task.scorer", directory, self.trust))
        check_sentences(scorer, "compare")
        scores = scorer.sentences([row.output for row in rows], [row.references for row in rows])
        counts = [replace(m, lower=lower_is_better(scorer, m.name)) for m in scores]
        for metric in counts:
            reported = results.scores.get(metric.name)
            if reported is None or abs(reported.value - metric.score) > 1e-6:
                raise UserError(
                    f"{file} gives {metric.name} {metric.score:.4f}, but {_SCORES} has "
                    f"{reported.value if reported else 'none'}; evaluate again"
                )
        made_by = results.model_dump(include={"generation", "ensemble", "rerank"})
        settings = {**settings, **made_by}
        metrics, references = {m.name: m for m in counts}, (row.references for row in rows)
        group = results.group if self.group is None else self.group
        labels: Any = None
        if group is not None:
            labels = labels_of(group, [row.source for row in rows]) or [row.group for row in rows]
            if None in labels or not self._has_labels(results):
                raise UserError(f"{path} has no labels of its rows; evaluate it with group={group}")
        notes = [*scorer_notices(scorer, references), *(results.notes if group is None else ())]
        return ComparedRun(path, run_dir, settings, results, rows, metrics, notes, group, labels)


def _rows(file: Path) -> list[Row]:
    try:
        with opened(file) as lines:
            rows = [Row.model_validate_json(x) for x in limited_lines(lines, file, LARGEST)]
    except ValidationError as error:
        raise UserError(f"cannot read {file}; evaluate again") from error
    if not rows:
        raise UserError(f"{file} is empty; evaluate again")
    return rows


def config_of(bundle: Path, trust: Sequence[str]) -> Config:
    """Return the configuration of a bundle, its data paths resolved within the bundle's run."""
    config = read_config(bundle, trust)
    return {**config, "data": with_paths(part_of(config, "data", bundle), bundle)}


def trusted(node: Node, key: str, directory: Path, trust: Sequence[str]) -> Any:
    """Build an object that an evaluation names as its data, search or scorer.

    Args:
        node: node of its scores.json.
        key: key of such a node in a configuration.
        directory: directory of the evaluation.
        trust: packages besides this one whose types it may name.

    Raises:
        UserError: if the type does not belong there.
    """

    def marks(part: Node, at: str) -> dict[str, Node]:
        if not isinstance(part, dict) or TARGET not in part:
            return {}
        target = str(part[TARGET])
        package, name = target.partition(".")[0], target.rpartition(".")[2]
        types = types_at(at) or types_at(f"{at}.0")  # the key of a list's items
        if package == "seqattn" and name in types:
            return types[name]
        if package in trust:
            return {TARGET: target}
        what = at.rpartition(".")[2]
        raise UserError(
            f"{directory / _SCORES} names the {what} {target}, which is not trusted; add "
            f"trust=[{package}] if you trust its author"
        )

    return build(replace_marks(node, key, marks), key)


def _results(directory: Path) -> Results:
    file = directory / _SCORES
    if not is_file(file):
        raise UserError(f"{file} does not exist; evaluate again")
    try:
        return Results.model_validate_json(read_bytes(file))
    except ValidationError as error:
        raise UserError(f"cannot read {file}; evaluate again") from error


def find_runs(paths: Sequence[str]) -> Iterator[Path]:
    """Yield runs and evaluations; for a multirun's folder, those of its jobs."""
    for path in (user_path(name) for name in paths):
        with file_faults("read", path):
            jobs = [job for job in path.iterdir() if job.name.isdigit()] if path.is_dir() else []
        if is_file(path / _CONFIG) or not jobs:
            yield path
        yield from sorted(jobs, key=lambda job: int(job.name))
