"""Settings of quality=true, and its figures on a split."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge, Le

from seqattn.bundle.bundle import Bundle
from seqattn.bundle.files import store
from seqattn.bundle.outputs import Outputs
from seqattn.bundle.text_options import TextOption
from seqattn.checking import BadValue, CountOrNone, Share
from seqattn.data.base import Part, Texts, chosen_lines
from seqattn.data.lines import write_lines
from seqattn.data.text_files import read_lines
from seqattn.errors import UserError
from seqattn.extras.explain.explanations import METHODS
from seqattn.extras.quality.calibration import Calibration, calibrated
from seqattn.extras.quality.figures import Floats, auc, reliability, risk_coverage, spearman
from seqattn.extras.quality.judge import Judge, pairs_of
from seqattn.extras.quality.signals import signals_of
from seqattn.inputs import check_there
from seqattn.settings.nodes import TARGET, build
from seqattn.storage import user_path

Score = Annotated[float, Ge(0), Le(100)]
FILE = "quality.jsonl"


@dataclass(frozen=True)
class Quality(TextOption):
    """Settings of judging outputs.

    Args:
        usable, review: lowest expected scores of these labels; an output below both is unusable.
        left_out: largest share of source words marked as left out of a usable output.
        words: True to mark source words, which takes a pass for each.
        worst: number of lines to list at the end, worst first.
        marked: share of the words of each side that a calibration marks in its own outputs.
        labels: file with a line for each row of a split, 1 for a faulty output, else 0.

    Raises:
        UserError: if `review` is above `usable`.
    """

    usable: Score = 60.0
    review: Score = 40.0
    left_out: Share = 0.25
    words: bool = True
    worst: CountOrNone = 0
    marked: Share = 0.05
    labels: str | None = None
    has_columns: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.review > self.usable:
            what = f"must be at most usable ({self.usable:g}), got {self.review:g}"
            raise BadValue("review", what, "usable")

    def label(self, expected: float, left_out: float = 0.0) -> str:
        """Return one of `LABELS`. Args: left_out: share of source words marked as left out."""
        if expected >= self.usable and left_out <= self.left_out:
            return "usable"
        return "review" if expected >= self.review else "unusable"

    def of(self, bundle: Bundle) -> Judge:
        """Return a judge of outputs by a calibrated bundle.

        Raises:
            UserError: if it is not calibrated, or does not read texts.
        """
        node = _checked(bundle).config.get("calibration")
        if not isinstance(node, dict):
            raise UserError(
                "quality=true needs a calibration; first run seqattn evaluate "
                f"bundle={bundle.path} split=val quality=true"
            )
        path = f"{Calibration.__module__}.{Calibration.__qualname__}"
        fit: Calibration = build({TARGET: path, **node}, "calibration")
        return Judge(self, bundle, fit)

    def check_split(
        self, bundle: Bundle, rows: Texts, scorer: Any, split: str, part: Part | None
    ) -> None:
        """Read the labels, and check before a search that its outputs can be judged.

        Raises:
            UserError: as `evaluated`.
        """
        if split == "val":
            _checked(bundle)
        else:
            self.of(bundle)
        _sentence_scores(scorer, ["a"], [["a"]])
        self._faulty(len(rows.sources), part)

    def evaluated(
        self, bundle: Bundle, outputs: Outputs, scorer: Any, split: str, directory: Path, part: Any
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Judge the outputs of a split; return figures, and rows of a table.

        With split "val", first calibrate and store the calibration in the bundle. Writes
        quality.jsonl, the judgement of an output in each line. `part` as `chosen_lines`.

        Raises:
            UserError: as `of`, for too few outputs, or if `labels` does not fit them.
        """
        sources, texts = outputs.rows.sources, outputs.texts
        faulty = self._faulty(len(texts), part)
        name, scores = _sentence_scores(scorer, texts, outputs.rows.references)
        began = time.perf_counter()
        pairs = pairs_of(_checked(bundle), sources, texts)
        readings = signals_of(bundle, [*pairs.values()], self.words)
        scores, faulty, rows = scores[[*pairs]], faulty[[*pairs]], [r.signals for r in readings]
        seconds, more = (time.perf_counter() - began) / len(texts), {}
        if split == "val":
            fit = calibrated(readings, scores, name, self.marked)
            store(bundle.path, bundle.config, calibration=asdict(fit))
            bundle.config["calibration"] = asdict(fit)
            more = {"correlation": fit.correlation, "reliability": fit.reliability}
        judge = self.of(bundle)
        judged = judge.judged(sources, texts, pairs, readings)
        write_lines((json.dumps(result.document()) for result in judged), str(directory / FILE))
        for number, (result, output) in enumerate(zip(judged, texts, strict=True), 1):
            judge.count(number, result, output)
        judge.say()
        figures = {**_figures(judge.calibration, rows, scores, faulty), **more}
        table = _table(figures, name)
        if "source_share" not in judge.calibration.signals:
            table["left out"] = f"source_share, coverage: {METHODS['alti'].why_not(bundle.model)}"
        table["quality"] = f"{1000 * seconds:.1f} ms per sentence"
        table["quality"] += f"; calibration stored in {bundle.path}" * (split == "val")
        return {"seconds_per_sentence": seconds, **figures}, table

    def _faulty(self, count: int, part: Part | None) -> Floats:
        """Return the labels (N,) of a split's rows; not numbers without a file of them."""
        if self.labels is None:
            return np.full(count, np.nan)
        name = f"quality.labels={self.labels}"
        return self._labels[chosen_lines(len(self._labels), count, part, name)]

    @cached_property
    def _labels(self) -> Floats:
        """Labels (N,) of all lines of the file."""
        path = user_path(str(self.labels))
        check_there(path, "a file of labels")
        labels = [*read_lines(path)]
        for number, label in enumerate(labels, 1):
            if label.strip() not in ("0", "1"):
                raise UserError(f"{self.labels} line {number:,} must be 1 (faulty) or 0")
        return np.array(labels, np.float64)


def _checked(bundle: Bundle) -> Bundle:
    if "text" not in bundle.reads:
        raise UserError("quality=true needs a bundle that reads texts; remove it")
    return bundle.texts("quality=true")


def _sentence_scores(
    scorer: Any, outputs: Sequence[str], references: Sequence[Sequence[str]]
) -> tuple[str, Floats]:
    """Return the score of each output (N,), and its name: chrF, or the scorer's first."""
    scores = [score for score in scorer.sentences(outputs, references) if not score.lower]
    if not scores:
        raise UserError("quality=true needs a scorer with a score for which higher is better")
    score = next((score for score in scores if score.name == "chrF"), scores[0])
    return score.name, score.each


def _figures(
    calibration: Calibration, rows: Sequence[dict[str, float]], scores: Floats, faulty: Floats
) -> dict[str, Any]:
    """Return figures on how well expected scores and signals foretell scores and labels."""
    merits = calibration.merits(rows)
    good, bad = faulty == 0, faulty == 1
    figures = {
        "score": calibration.score,
        "expected": float(merits["expected"].mean()),
        "actual": float(scores.mean()),
        "correlation": {name: spearman(values, scores) for name, values in merits.items()},
        "reliability": reliability(merits["expected"], scores),
        "risk_coverage": risk_coverage(merits["expected"], scores),
    }
    if good.any() and bad.any():
        figures["auc"] = {name: auc(values[good], values[bad]) for name, values in merits.items()}
    return figures


def _table(figures: dict[str, Any], score: str) -> dict[str, str]:
    """Return figures as rows of a table."""
    (_, half_mean, best), mean = figures["risk_coverage"][4], figures["actual"]
    merit_rows: dict[str, str] = {
        name: ", ".join(f"{signal} {value:.3f}" for signal, value in figures[name].items())
        for name in ("correlation", "auc")
        if name in figures
    }
    return {
        f"expected {score}": f"{figures['expected']:.2f} (mean over sentences: {mean:.2f})",
        f"{score} of the best half": f"{half_mean:.2f} by expected score, at most {best:.2f}",
        **merit_rows,
    }
