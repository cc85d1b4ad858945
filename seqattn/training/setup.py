"""What training takes beside its settings: data, model and task, and what is shown of them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar

import torch
from lightning import Callback, seed_everything
from matplotlib.figure import Figure
from torch import Tensor

from seqattn.analysis.health_callback import (
    AttentionHealth,
    Reading,
    reading_of_questions,
    reading_of_texts,
)
from seqattn.bundle.architecture import Vocabularies
from seqattn.bundle.bundle import SpanBundle, TextBundle
from seqattn.bundle.outputs import answers_to, outputs_for
from seqattn.bundle.pictures import draw_question, draw_text
from seqattn.data.batch import Batch
from seqattn.data.module import Seq2SeqData, SpanData
from seqattn.data.span_batch import Questions, SpanBatch
from seqattn.errors import UserError
from seqattn.generation import GreedySearch
from seqattn.generation.base import Progress, inference
from seqattn.metrics.text import named
from seqattn.screen import progress
from seqattn.training.callbacks import Throughput
from seqattn.training.environment import environment
from seqattn.training.samples import HeatmapCallback, SampleTable
from seqattn.training.start import Start
from seqattn.training.task_options import FinalOptions
from seqattn.training.tasks.seq2seq import Seq2SeqTask, TextValidation
from seqattn.training.tasks.settings import Optimization, Validation
from seqattn.training.tasks.span_task import SpanTask, SpanValidation

_VALIDATED = 256  # sentences that greedy validation generates at once
_SHORT = 300  # characters that still make a picture to be taken in at a glance
_DRAWN = 60  # tokens of a side that it shows


class Setup(ABC):
    """Data, model and task of a run, ready to train; the two kinds are of texts and of spans.

    Args:
        start: the settings of the run, and what it begins with.
    """

    data_type: ClassVar[Any]
    task_type: ClassVar[Any]
    bundle_type: ClassVar[Any]
    unit: ClassVar[str]
    """What is scored, in words."""
    tokens: ClassVar[tuple[str, str]]
    """Which are counted for the speed: in words, and the batch's attribute that counts them."""
    sides: ClassVar[Sequence[tuple[str, str]]]
    """What must fit the model's positions, and the keys that bound it."""

    def __init__(self, start: Start) -> None:
        self.run = run = start.run
        self.data = self.data_type(
            run.task.source(run.data), run.tokenizer, run.loader, run.cache_dir, run.seed,
            start.tokenizer,
        )  # fmt: skip
        tokenizer = self.data.tokenizer  # trained here, where there is none yet
        seed_everything(run.seed, verbose=False)
        self.sizes = Vocabularies.of(tokenizer)
        self.model: Any = run.architecture.build(self.sizes)
        start.load_weights(self.model, tokenizer)
        self.data.setup("fit")
        self.rows = self.data.rows("val")
        self.final = run.task.final or FinalOptions(splits=[])
        # val first: its scoring may find what the others are scored with
        splits = sorted(self.final.splits, key=lambda split: split != "val")
        self.scored = {split: self.data.rows(split) for split in splits}
        home = Path(run.run_dir)
        config = deepcopy(dict(run.settings))  # to which a threshold may be added
        self.bundle = self.bundle_type(self.model, tokenizer, config, {}, home / "model")
        task = run.task
        optimization = Optimization(
            run.optimizer, run.schedule(), task.label_smoothing, task.teacher_forcing,
            task.r_drop, run.seed,
        )  # fmt: skip
        optimization.optimizer(self.model, fused=False)  # refuses its values before the run begins
        every, limit = task.validation.every, task.validation.sentences
        validation = replace(self.validation(), every=every, limit=limit)
        self.task = self.task_type(self.model, optimization, validation, **self.task_settings())
        unit, count = self.tokens
        self.environment = environment(run.trainer)
        self.throughput = Throughput(unit, attrgetter(count))
        self.callbacks: list[Callback] = [
            self.throughput,
            SampleTable(self.samples, home / "samples" / "samples.csv"),
            HeatmapCallback(self.draw, home / "heatmaps"),
        ]
        if task.validation.attention_health:
            self.callbacks.append(AttentionHealth(partial(self.reading, self.data.first("val"))))

    def task_settings(self) -> dict[str, Any]:
        """What a task of this kind is told besides."""
        return {}

    def rebuild(self, weights: Mapping[str, Tensor]) -> None:
        """A new model in place of one in shards. Args: weights: whole, by the task's names."""
        self.model = self.bundle.model = self.task.model = self.run.architecture.build(self.sizes)
        self.task.load_state_dict(weights)

    @abstractmethod
    def validation(self) -> Validation:
        """How outputs are made and scored beside the loss."""

    def final_scores(self) -> dict[str, Any]:
        """Scores of the bundle on the splits that are asked for, by its own search."""
        found: dict[str, Any] = {}
        count = 8 if self.run.trainer.fast_dev_run else self.final.sentences or None
        for split, rows in self.scored.items():
            with progress(f"scoring {split}", self.unit) as tell:
                found |= self.scores(split, rows, count, tell)
        return found

    @abstractmethod
    def scores(self, split: str, rows: Any, count: int | None, tell: Progress) -> dict[str, Any]:
        """Scores of the bundle on the first `count` rows of a split, or on all."""

    @abstractmethod
    def samples(self) -> list[tuple[str, str, str]]:
        """Source, output and reference of some rows of the last validation."""

    @abstractmethod
    def reading(self, batch: Any, device: torch.device) -> Reading:
        """How the model reads a batch, its attentions watched, on a device."""

    @abstractmethod
    def draw(self) -> Figure | None:
        """Where the model looks in a row of the validation split, the first that is short."""


class TextSetup(Setup):
    """Of an encoder-decoder on pairs of texts."""

    data_type, task_type, bundle_type = Seq2SeqData, Seq2SeqTask, TextBundle
    unit = "texts"
    tokens = ("target tokens", "target_tokens")
    sides = (("source", "loader.max_length"), ("target", "loader.max_length"))

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        for split, rows in self.scored.items():
            if not rows.references:
                raise UserError(f"task.final.splits: the {split} split has no references")

    def validation(self) -> TextValidation:
        search: Any = self.run.generation
        greedy = GreedySearch(
            search.limit, processors=search.processors, batch_size=_VALIDATED, workers=1
        )
        return TextValidation(
            greedy.over(self.model),
            self.run.task.scorer,
            self.bundle.tokenizer.decode_target,
            lambda: self.rows.references,
        )

    def scores(self, split: str, rows: Any, count: int | None, tell: Progress) -> dict[str, Any]:
        sources, references = rows.sources[:count], rows.references[:count]
        outputs = outputs_for(self.bundle, self.run.generation, sources, tell)
        return named(self.run.task.scorer.score(outputs.texts, references, sources), split)

    def samples(self) -> list[tuple[str, str, str]]:
        sources = self.rows.sources
        return [(sources[s.row], s.hypothesis, s.references[0]) for s in self.task.samples]

    def reading(self, batch: Batch, device: torch.device) -> Reading:
        batch = batch.to(device)
        return reading_of_texts(self.model, batch.source, batch.target_input)

    def draw(self) -> Figure | None:
        # of those that are validated on: the model may have no positions for others
        pairs = [(self.rows.sources[n], self.rows.targets[n]) for n in self.data.kept("val")]
        pair = min(pairs, key=lambda pair: max(_SHORT, *map(len, pair)))
        with inference(self.model):
            return draw_text(
                self.bundle, *pair, ["cross"], most=_DRAWN, said="reference"
            ).figures.get("cross")


class SpanSetup(Setup):
    """Of a model that answers questions by spans of their contexts.

    Its bundle gets the threshold that scores best, where the validation split has questions without
    an answer.
    """

    data_type, task_type, bundle_type = SpanData, SpanTask, SpanBundle
    unit = "questions"
    tokens = ("context tokens", "context_tokens")
    sides = (("window", "loader.window"), ("question", "loader.max_question"))

    def validation(self) -> SpanValidation:
        return SpanValidation(self.bundle.answerer(), lambda: self.rows)

    def task_settings(self) -> dict[str, Any]:
        task: Any = self.run.task
        return {"every_answer": task.every_answer}

    def final_scores(self) -> dict[str, Any]:
        if "val" not in self.scored and not all(self.rows.answers):  # the threshold is the bundle's
            with progress("finding the threshold", self.unit) as tell:
                self.scores("val", self.rows, self.run.task.validation.sentences or None, tell)
        return super().final_scores()

    def scores(self, split: str, rows: Any, count: int | None, tell: Progress) -> dict[str, Any]:
        asked = Questions(*(column[:count] for column in rows))
        search: Any = self.run.generation
        answers = answers_to(self.bundle, replace(search, threshold=1.0), asked, tell)
        if split == "val" and not all(asked.answers):
            self.bundle.config["generation"]["threshold"] = answers.best_threshold()
        threshold = self.bundle.config["generation"]["threshold"]
        answers = answers._replace(found=[one.within(threshold) for one in answers.found])
        return named(answers.scores(self.run.task.scorer), split)

    def samples(self) -> list[tuple[str, str, str]]:
        asked, none = self.rows.questions, "(no answer)"
        return [
            (asked[s.row], s.hypothesis or none, " | ".join(s.references) or none)
            for s in self.task.samples
        ]

    def reading(self, batch: SpanBatch, device: torch.device) -> Reading:
        return reading_of_questions(self.model, batch.to(device))

    def draw(self) -> Figure | None:
        asked = (self.rows.questions[0], self.rows.contexts[0])
        return draw_question(self.bundle, *asked).get("question")


def setup_of(start: Start) -> Setup:
    """What fits the model that a run's task trains."""
    return (SpanSetup if start.run.task.output == "spans" else TextSetup)(start)
