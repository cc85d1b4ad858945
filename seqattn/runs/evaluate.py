"""A bundle's scores on a split of its data, or of other data."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from seqattn.analysis.lengths import LengthBin, length_bins
from seqattn.bundle.bundle import SpanBundle, TextBundle, load_bundle
from seqattn.bundle.files import read_config
from seqattn.checking import Count, checked
from seqattn.data.base import Texts
from seqattn.data.span_batch import Questions
from seqattn.data.squad import AnswerPairs
from seqattn.errors import UserError
from seqattn.generation.base import generate_from_windows
from seqattn.generation.span_search import Answered, Answerer, SpanSearch
from seqattn.metrics.text import Scorer, TextScore
from seqattn.ops.memory import keep_freed_memory
from seqattn.runs.lines import in_one_line
from seqattn.runs.search import BatchedSearch, check_search, search_node
from seqattn.runs.span_fitting import best_texts, score_answers
from seqattn.runs.tables import print_table
from seqattn.runs.task_options import task_class
from seqattn.storage import write_whole


class Outputs(NamedTuple):
    """What a bundle made of some sources."""

    texts: list[str]
    tokens: int
    """Target tokens, ends counted."""
    seconds: float
    """Of generating."""


@checked
@dataclass(frozen=True)
class Evaluation:
    """Scores of a bundle on a split; writes scores and outputs to a directory.

    Args:
        bundle: the path of a trained model.
        data: where the texts or questions come from.
        generation: the search.
        scorer: how outputs are compared with their references.
        split: train, val or test.
        output: the directory; None for evaluation/SPLIT beside the bundle.
        lengths: also scores by source length, the most words of each bin.
        device: where the model runs.
        cache_dir: of the data; None for the usual place.
        trust: packages, beside this one, that parts of the bundle may come from.
    """

    bundle: str
    data: Any
    generation: BatchedSearch | SpanSearch
    scorer: Any
    split: Literal["train", "val", "test"] = "test"
    output: str | None = None
    lengths: list[Count] | None = None
    device: str = "cpu"
    cache_dir: str | None = None
    trust: Sequence[str] = ()

    @property
    def directory(self) -> Path:
        """Where the scores go."""
        default = Path(self.bundle).parent / "evaluation" / self.split
        return Path(self.output or default).expanduser()

    def run(self) -> dict[str, Any]:
        """Generates or answers, scores, writes and prints; returns what is in scores.json.

        Raises:
            UserError: where the bundle or the data cannot be used.
        """
        config = read_config(Path(self.bundle).expanduser(), trust=self.trust)
        task = task_class(config)
        check_search(task.output, self.generation)
        if task.output == "spans":
            results, rows = self._spans()
        else:
            results, rows = self._texts(task.reads)
        write_json(self.directory / "scores.json", results)
        rows["written to"] = str(self.directory)
        print_table(f"{self.split} of {self.bundle}", rows)
        return results

    def _texts(self, kind: str) -> tuple[dict[str, Any], dict[str, str]]:
        split = read_split(self.data, self.split, self.cache_dir, kind)
        bins = [] if self.lengths is None else length_bins(split.sources, self.lengths)
        keep_freed_memory()
        bundle = load_bundle(self.bundle, self.device, trust=self.trust)
        assert isinstance(bundle, TextBundle)
        assert isinstance(self.generation, BatchedSearch)
        outputs = generate(bundle, self.generation, split.sources)
        scores = self.scorer.score(outputs.texts, split.references, split.sources)
        count, seconds = len(split.sources), outputs.seconds
        results = {
            **self._head("sentences", count, scores),
            "sentences_per_second": count / seconds,
            "tokens_per_second": outputs.tokens / seconds,
        }
        rows = score_rows(scores)
        rows["sentences"] = f"{count:,} ({count / seconds:,.1f} a second)"
        rows["target tokens"] = f"{outputs.tokens:,} ({outputs.tokens / seconds:,.0f} a second)"
        parts = [_of_bin(self.scorer, part, split, outputs.texts) for part in bins]
        if parts:
            results["by_length"] = parts
        for part in parts:
            name, value = next(iter(part["scores"].items()))
            words = f"{name} {value['value']:.2f} ({part['sentences']:,} sentences)"
            rows[f"{part['words']} words"] = words
        self.directory.mkdir(parents=True, exist_ok=True)
        lines = "".join(f"{in_one_line(text)}\n" for text in outputs.texts)
        write_whole(self.directory / "hypotheses.txt", lines.encode())
        if split.ids is not None:
            predictions = dict(zip(split.ids, outputs.texts, strict=True))
            write_json(self.directory / "predictions.json", predictions)
        return results, rows

    def _spans(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Writes what the official scorer reads, and every answer that was asked for."""
        asked = Questions.of(self.data.load(self.split, _cache(self.cache_dir)))
        keep_freed_memory()
        bundle = load_bundle(self.bundle, self.device, trust=self.trust)
        assert isinstance(bundle, SpanBundle)
        assert isinstance(self.generation, SpanSearch)
        began = time.perf_counter()
        answerer = Answerer(bundle.model, bundle.encoder, self.generation)
        found = answerer.answer(asked.questions, asked.contexts)
        rate = len(asked.ids) / (time.perf_counter() - began)
        scores = score_answers(self.scorer, asked, found)
        _write_answers(self.directory, asked, found)
        rows = score_rows(scores)
        rows["questions"] = f"{len(asked.ids):,} ({rate:,.1f} a second)"
        rows["left unanswered"] = f"{sum(not answered.answers for answered in found):,}"
        head = self._head("questions", len(asked.ids), scores)
        return {**head, "questions_per_second": rate}, rows

    def _head(self, unit: str, count: int, scores: Sequence[TextScore]) -> dict[str, Any]:
        return {
            "bundle": self.bundle,
            "split": self.split,
            unit: count,
            "scores": plain_scores(scores),
            "generation": search_node(self.generation),
        }


def read_split(data: Any, split: str, cache_dir: str | None, kind: str) -> Texts:
    """A split's texts.

    Args:
        data: the source.
        split: train, val or test.
        cache_dir: of the data; None for the usual place.
        kind: what the source holds: pairs, or questions to be answered in own words.

    Raises:
        UserError: where it cannot be read, or has no references.
    """
    source = AnswerPairs(data) if kind == "questions" else data
    texts = source.load(split, _cache(cache_dir))
    if "target" not in texts.column_names:
        raise UserError(f"the {split} split has no references to score against")
    return Texts.of(texts)


def generate(bundle: TextBundle, search: BatchedSearch, sources: Sequence[str]) -> Outputs:
    """The best output for every source, and how long that took."""
    began = time.perf_counter()
    found = generate_from_windows(search.over(bundle.model), bundle.encode(sources))
    seconds = time.perf_counter() - began
    texts = bundle.tokenizer.decode_target([best[0].ids for best in found])
    return Outputs(texts, sum(len(best[0].ids) + 1 for best in found), seconds)


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


def _cache(cache_dir: str | None) -> Path | None:
    return Path(cache_dir) if cache_dir else None


def _of_bin(
    scorer: Scorer, part: LengthBin, split: Texts, outputs: Sequence[str]
) -> dict[str, Any]:
    columns = (outputs, split.references, split.sources)
    chosen = ([column[row] for row in part.rows] for column in columns)
    scores = plain_scores(scorer.score(*chosen))  # type: ignore[arg-type]
    return {"words": part.words, "sentences": len(part.rows), "scores": scores}


def _write_answers(directory: Path, asked: Questions, found: Sequence[Answered]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    write_json(directory / "predictions.json", best_texts(asked, found))
    none = {name: answered.no_answer for name, answered in zip(asked.ids, found, strict=True)}
    write_json(directory / "no_answer.json", none)
    with (directory / "answers.jsonl").open("w", encoding="utf-8") as file:
        for name, answered in zip(asked.ids, found, strict=True):
            row = {"id": name, "answers": [answer._asdict() for answer in answered.answers]}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
