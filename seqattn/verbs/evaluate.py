"""A bundle's scores on a split of its data, or of other data."""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from seqattn.analysis.lengths import length_bins
from seqattn.bundle.bundle import SpanBundle, TextBundle
from seqattn.bundle.files import store_search
from seqattn.bundle.outputs import answers_to, outputs_for
from seqattn.checking import Count
from seqattn.data.lines import in_one_line, write_lines
from seqattn.data.span_batch import Questions
from seqattn.errors import UserError
from seqattn.metrics.text import TextScore, doubts
from seqattn.screen import print_table, progress
from seqattn.storage import user_path, write_json, write_whole
from seqattn.training.run_directory import room_for_files
from seqattn.verbs.bundle_run import ScoredRun, Split
from seqattn.verbs.made_from import contents_now
from seqattn.verbs.reranking import Reranking
from seqattn.verbs.tuning import Tuning, grid_of, show

SENTENCES, SENTENCE = "sentences.jsonl", ("source", "references", "output")
"""The file of an evaluation that holds its rows, and what each has."""


class Evaluated(NamedTuple):
    """Scores of a split, figures for its file, and rows for its table."""

    scores: Sequence[TextScore]
    figures: Mapping[str, Any]
    rows: dict[str, str]
    scored: int
    """How many rows of the split were scored."""
    doubts: Sequence[str]
    """Lines on what the scorer cannot measure."""


@dataclass(frozen=True, kw_only=True)
class Evaluation(ScoredRun):
    """Scores of a bundle on a split; writes scores and outputs to a directory.

    Args:
        bundle, device, trust, data, generation, scorer, split, cache_dir: as `ScoredRun`.
        output: the directory; None for evaluation/SPLIT beside the bundle, or SPLIT-ensemble or
            SPLIT-reranked where other models take part.
        lengths: also scores by source length, the most words of each bin.
        rerank: how hypotheses are ranked anew by another model.
        tune: lists of values to try on the validation split, by keys of the search and
            rerank.weight; nested keys as mappings. Empty to score with the search as it is.
        store: whether the best search of `tune` becomes the bundle's own.

    Raises:
        UserError: for tuning on another split or by lengths, or storing what is not tuned.
    """

    split: Split = "test"
    output: str | None = None
    lengths: list[Count] | None = None
    rerank: Reranking = field(default_factory=Reranking)
    tune: Mapping[str, Any] = field(default_factory=dict)
    store: bool = False

    def __post_init__(self) -> None:
        if self.tune and self.split != "val":
            raise UserError(
                f"tune chooses by the validation split, not split={self.split}, whose scores would "
                "be too good: add split=val, then evaluate the best once on test"
            )
        if self.tune and self.lengths is not None:
            raise UserError("tune scores whole splits; leave lengths out")
        if self.store and (not self.tune or self.ensemble or self.rerank.bundle):
            raise UserError(
                "store=true keeps in one bundle what tune finds for it alone: give tune, no "
                "ensemble and no rerank"
            )

    @property
    def directory(self) -> Path:
        """Where the scores go."""
        name: str = "tune" if self.tune else self.split
        name += "-ensemble" * bool(self.ensemble) + "-reranked" * bool(self.rerank.bundle)
        return user_path(self.output or Path(self.bundle).parent / "evaluation" / name)

    def run(self, silent: bool = False) -> dict[str, Any]:
        """Generates or answers, scores, writes and prints; returns what is in scores.json.

        Args:
            silent: prints nothing.

        Raises:
            UserError: where the bundle or the data cannot be used, or nothing can be written.
        """
        with room_for_files(self.directory):
            return self._run(silent)

    def _run(self, silent: bool) -> dict[str, Any]:
        bundle = self.load(self.generation)
        if isinstance(bundle, SpanBundle):
            if self.tune or self.rerank.bundle or self.lengths is not None:
                raise UserError(f"{self.bundle} answers by spans; tune, rerank, lengths take texts")
        elif self.tune:
            return self._tuned(bundle)
        made = self._spans(bundle) if isinstance(bundle, SpanBundle) else self._texts(bundle)
        rows = score_rows(made.scores) | made.rows
        named = type(self.data).__name__
        origin = getattr(self.data, "origin", lambda _: named)(self.split)
        files: Any = getattr(self.data, "files", lambda _: [])
        results = {
            "bundle": str(user_path(self.bundle).absolute()),  # read from any folder
            "ensemble": list(self.ensemble),
            "split": self.split,
            "data": origin,
            "rows": made.scored,
            "scores": plain_scores(made.scores),
            **made.figures,
            "generation": self.settings.get("generation"),
            "scorer": self.settings.get("scorer"),
            "rerank": self.settings.get("rerank") if self.rerank.bundle else None,
            "made_from": contents_now(self.bundle, files(self.split)),
        }
        write_json(self.directory / "scores.json", results)
        rows["written to"] = str(self.directory)
        notes = [f"scored {made.scored:,} rows of {origin}", *getattr(self.data, "report", list)()]
        notes += made.doubts
        if not silent:
            print_table(f"{self.split} of {self.names}", rows, notes=notes)
        return results

    def _tuned(self, bundle: TextBundle) -> dict[str, Any]:
        """Tries settings, prints them, and writes the best as a choice of `generation`."""
        reranker = self.rerank.over(bundle.tokenizer, self.device, self.trust)
        search, grid = self.settings["generation"], grid_of(self.tune)
        tuning = Tuning(bundle, search, grid, self.scorer, self.rerank, reranker)
        with progress("trying", "settings") as tell:
            trials = tuning.run(self.read_texts(bundle), tell)
        results = {
            "bundle": self.bundle,
            "ensemble": list(self.ensemble),
            "best": show(f"settings of {self.names} on {self.split}", trials),
            "trials": [
                {"settings": one.settings, "scores": plain_scores(one.scores), "p": one.p}
                for one in trials
            ],
        }
        node = tuning.node(trials[0].settings)
        (self.directory / "generation").mkdir(parents=True, exist_ok=True)
        file = self.directory / "generation" / "tuned.yaml"
        write_whole(file, yaml.safe_dump(node, sort_keys=False).encode())
        write_json(self.directory / "tuning.json", results)
        typed = shlex.quote(str(self.directory))
        print(f"written to {file}: --config-dir {typed} generation=tuned")
        if self.store:
            store_search(bundle.path, bundle.config, node)
            print(f"stored: {bundle.path} searches so from now on")
        return results

    def _texts(self, bundle: TextBundle) -> Evaluated:
        split = self.read_texts(bundle)
        bins = [] if self.lengths is None else length_bins(split.sources, self.lengths)
        reranker = self.rerank.over(bundle.tokenizer, self.device, self.trust)
        with progress("generating", "texts") as tell:
            search = self.rerank.search(self.generation)
            rank = None if reranker is None else reranker.rank
            outputs = outputs_for(bundle, search, split.sources, tell, rank)
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
        return Evaluated(scores, figures, rows, count, doubts(self.scorer, split.references))

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
        return Evaluated(scores, figures, rows, count, doubts(self.scorer, asked.answers))


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
