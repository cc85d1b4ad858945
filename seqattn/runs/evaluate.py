"""A bundle's scores on a split of its data, or of other data."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from seqattn.analysis.lengths import length_bins
from seqattn.bundle.bundle import SpanBundle, TextBundle
from seqattn.bundle.nodes import describe
from seqattn.checking import Count, checked
from seqattn.data.base import Texts
from seqattn.data.lines import in_one_line, write_lines
from seqattn.data.span_batch import Questions
from seqattn.errors import UserError
from seqattn.generation.base import Progress, Search
from seqattn.generation.span_search import Answered, SpanSearch
from seqattn.metrics.qa import QaScorer, best_threshold
from seqattn.metrics.text import TextScore
from seqattn.runs.bundle_run import BundleRun, outputs_for
from seqattn.runs.tables import print_table
from seqattn.runs.task_options import task_class
from seqattn.storage import write_whole
from seqattn.training.screen import progress

Split = Literal["train", "val", "test"]
SENTENCES, SENTENCE = "sentences.jsonl", ("source", "references", "output")
"""The file of an evaluation that holds its rows, and what each has."""


@checked
@dataclass(frozen=True, kw_only=True)
class ScoredRun(BundleRun):
    """A run that scores what a bundle makes of a split.

    Args:
        bundle, device, trust: as `BundleRun`.
        data: where the texts or questions come from.
        generation: the search.
        scorer: how outputs are compared with their references.
        split: train, val or test.
        cache_dir: of the data; None for the usual place.
    """

    data: Any
    generation: Search | SpanSearch
    scorer: Any
    split: Split = "val"
    cache_dir: str | None = None

    def read_texts(self, bundle: TextBundle) -> Texts:
        """The split, as the task of the bundle reads it.

        Raises:
            UserError: where it cannot be read, or has no references.
        """
        texts = self.load_split(task_class(bundle.config).source(self.data))
        if "target" not in texts.column_names:
            raise UserError(f"the {self.split} split has no references to score against")
        return Texts.of(texts)

    def load_split(self, source: Any) -> Any:
        """The rows of the split in a source of data."""
        return source.load(self.split, Path(self.cache_dir) if self.cache_dir else None)


class Evaluated(NamedTuple):
    """Scores of a split, figures for its file, and rows for its table."""

    scores: Sequence[TextScore]
    figures: Mapping[str, Any]
    rows: dict[str, str]
    scored: int
    """How many rows of the split were scored."""


@checked
@dataclass(frozen=True, kw_only=True)
class Evaluation(ScoredRun):
    """Scores of a bundle on a split; writes scores and outputs to a directory.

    Args:
        bundle, device, trust, data, generation, scorer, split, cache_dir: as `ScoredRun`.
        output: the directory; None for evaluation/SPLIT beside the bundle.
        lengths: also scores by source length, the most words of each bin.
    """

    split: Split = "test"
    output: str | None = None
    lengths: list[Count] | None = None

    @property
    def directory(self) -> Path:
        """Where the scores go."""
        default = Path(self.bundle).parent / "evaluation" / self.split
        return Path(self.output or default).expanduser()

    def run(self, silent: bool = False) -> dict[str, Any]:
        """Generates or answers, scores, writes and prints; returns what is in scores.json.

        Args:
            silent: prints nothing.

        Raises:
            UserError: where the bundle or the data cannot be used.
        """
        bundle = self.load(self.generation)
        made = self._spans(bundle) if isinstance(bundle, SpanBundle) else self._texts(bundle)
        rows = score_rows(made.scores) | made.rows
        named = type(self.data).__name__
        origin = getattr(self.data, "origin", lambda _: named)(self.split)
        results = {
            "bundle": self.bundle,
            "split": self.split,
            "data": origin,
            "rows": made.scored,
            "scores": plain_scores(made.scores),
            **made.figures,
            "generation": describe(self.generation),
            "scorer": describe(self.scorer),
        }
        write_json(self.directory / "scores.json", results)
        rows["written to"] = str(self.directory)
        note = f"scored {made.scored:,} rows of {origin}"
        if not silent:
            print_table(f"{self.split} of {self.bundle}", rows, notes=[note])
        return results

    def _texts(self, bundle: TextBundle) -> Evaluated:
        split = self.read_texts(bundle)
        bins = [] if self.lengths is None else length_bins(split.sources, self.lengths)
        with progress("generating", "texts") as tell:
            outputs = outputs_for(bundle, self.generation, split.sources, tell)
        count, tokens, seconds = len(split.sources), outputs.tokens, outputs.seconds
        rows = {
            "sentences": f"{count:,} ({count / seconds:,.1f} a second)",
            "target tokens": f"{tokens:,} ({tokens / seconds:,.0f} a second)",
        }
        figures: dict[str, Any] = {
            "sentences": count,
            "sentences_per_second": count / seconds,
            "tokens_per_second": tokens / seconds,
        }
        columns = (outputs.texts, split.references, split.sources)
        scores = self.scorer.score(*columns)
        for words, numbers in bins:
            part = self.scorer.score(*([column[row] for row in numbers] for column in columns))
            figures.setdefault("by_length", []).append(
                {"words": words, "sentences": len(numbers), "scores": plain_scores(part)}
            )
            first = f"{part[0].name} {part[0].value:.2f}"
            rows[f"{words} words"] = f"{first} ({len(numbers):,} sentences)"
        self.directory.mkdir(parents=True, exist_ok=True)
        write_lines(map(in_one_line, outputs.texts), str(self.directory / "hypotheses.txt"))
        self._write_sentences(split.sources, split.references, outputs.texts)
        if split.ids is not None:
            predictions = dict(zip(split.ids, outputs.texts, strict=True))
            write_json(self.directory / "predictions.json", predictions)
        return Evaluated(scores, figures, rows, count)

    def _write_sentences(
        self, sources: Iterable[str], references: Iterable[Sequence[str]], outputs: Iterable[str]
    ) -> None:
        """Writes what `compare` reads: each row as it came, and what was made of it."""
        rows = zip(sources, references, outputs, strict=True)
        lines = (json.dumps(dict(zip(SENTENCE, row, strict=True))) for row in rows)
        write_lines(lines, str(self.directory / SENTENCES))

    def _spans(self, bundle: SpanBundle) -> Evaluated:
        """Writes what the official scorer reads, and every answer that was asked for."""
        asked = Questions.of(self.load_split(self.data))
        with progress("answering", "questions") as tell:
            answers = answers_to(bundle, self.generation, asked, tell)
        count, rate = len(asked.ids), len(asked.ids) / answers.seconds
        scores = answers.scores(self.scorer)
        self.directory.mkdir(parents=True, exist_ok=True)
        write_json(self.directory / "predictions.json", answers.best)
        self._write_sentences(asked.questions, asked.answers, answers.best.values())
        write_json(self.directory / "no_answer.json", answers.no_answer)
        each = (
            {"id": name, "answers": [answer._asdict() for answer in answered.answers]}
            for name, answered in zip(asked.ids, answers.found, strict=True)
        )
        lines = (json.dumps(one, ensure_ascii=False) for one in each)
        write_lines(lines, str(self.directory / "answers.jsonl"))
        rows = {
            "questions": f"{count:,} ({rate:,.1f} a second)",
            "left unanswered": f"{sum(not answered.answers for answered in answers.found):,}",
        }
        figures = {"questions": count, "questions_per_second": rate}
        return Evaluated(scores, figures, rows, count)


class Answers(NamedTuple):
    """What a bundle answered to some questions, and in how many seconds."""

    asked: Questions
    found: list[Answered]
    seconds: float

    @property
    def best(self) -> dict[str, str]:
        """The best answer to each question by its id, "" for none."""
        texts = (answered.answers[0].text if answered.answers else "" for answered in self.found)
        return dict(zip(self.asked.ids, texts, strict=True))

    @property
    def no_answer(self) -> dict[str, float]:
        """The probability of each question by its id that it has no answer."""
        return {n: one.no_answer for n, one in zip(self.asked.ids, self.found, strict=True)}

    def scores(self, scorer: QaScorer) -> list[TextScore]:
        """How right the best answers are."""
        return scorer.score(self.best, self._gold)

    def best_threshold(self) -> float:
        """The probability of no answer above which questions are best left unanswered."""
        return max(0.0, best_threshold(self.best, self._gold, self.no_answer).value)

    @property
    def _gold(self) -> dict[str, list[str]]:
        return dict(zip(self.asked.ids, self.asked.answers, strict=True))


def answers_to(
    bundle: SpanBundle, search: Any, asked: Questions, progress: Progress | None = None
) -> Answers:
    """The answers to every question; `progress` is called after each."""
    began = time.perf_counter()
    found = bundle.answerer(search).answer(asked.questions, asked.contexts, progress)
    return Answers(asked, found, time.perf_counter() - began)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes JSON that a person can read."""
    write_whole(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


def plain_scores(scores: Sequence[TextScore]) -> dict[str, Any]:
    """Values and signatures by name."""
    rows: dict[str, Any] = {}
    for score in scores:
        rows[score.name] = {"value": score.value, "signature": score.signature}
        if score.interval is not None:
            rows[score.name]["interval"] = list(score.interval)
    return rows


def score_rows(scores: Sequence[TextScore]) -> dict[str, str]:
    """Scores as rows of a table."""
    rows = {}
    for score in scores:
        within = score.interval
        spread = f" ({within[0]:.2f} to {within[1]:.2f})" if within else ""
        rows[score.name] = f"{score.value:.2f}{spread}   {score.signature}"
    return rows
