"""Setup of a training run: data, model and task, with their scores and figures."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar

from lightning import seed_everything
from torch import Tensor

from seqattn.bundle.files import part_of
from seqattn.bundle.text_options import found_in_training
from seqattn.data.module import Seq2SeqData
from seqattn.data.options import BatchLimits
from seqattn.data.vocabulary import TokenizerConfig
from seqattn.errors import UserError
from seqattn.generation import Generator, GreedySearch
from seqattn.generation.base import Progress
from seqattn.metrics.text import named
from seqattn.screen import progress
from seqattn.settings.assembly import Vocabularies
from seqattn.settings.nodes import import_path
from seqattn.training.environment import environment
from seqattn.training.report import Throughput
from seqattn.training.settings import TrainingSettings
from seqattn.training.start import initial_bundle, load_weights, resumed_state
from seqattn.training.task_options import FinalOptions
from seqattn.training.tasks.seq2seq import Seq2SeqTask, generated
from seqattn.training.tasks.settings import Optimization, Validation

_VALIDATED = 256  # sentences per batch of greedy validation
_DOCUMENTS = "seqattn.extras.documents.joined_rows.rows_type"


class Setup:
    """Data, model and task of a run, ready to train: an encoder-decoder on pairs of texts.

    Args:
        run: settings of the run.

    Attributes:
        run: the same, with the tokenizer's settings of `init_from`.
        checkpoint: the checkpoint of a resumed run.
        step_batches: batches of an optimizer step, if they are fixed.

    Raises:
        UserError: if the data or the initial state cannot be read, or do not fit the settings.
    """

    data_type: ClassVar[Any] = Seq2SeqData
    task_type: ClassVar[Any] = Seq2SeqTask
    tokens: ClassVar[tuple[str, str]] = ("target tokens", "target_tokens")
    """Tokens counted to measure speed: their name, and the batch's attribute."""
    sides: ClassVar[Sequence[tuple[str, str]]] = (
        ("source", "loader.max_length"),
        ("target", "loader.max_length"),
    )
    """Texts that must fit the model's positions, and the keys that bound them."""
    validated_by: ClassVar[str] = "greedy search"
    """Search of validations during training; "" for that of the final scores."""

    def __init__(self, run: TrainingSettings) -> None:
        bundle, tokenizer, self.checkpoint = None, None, None
        self.step_batches = run.loader.step_batches
        if run.resume is not None:
            tokenizer, self.checkpoint, self.step_batches = resumed_state(run)
        elif run.init_from is not None:
            bundle = initial_bundle(run, run.init_from)
            tokenizer = bundle.tokenizer
            run = run.changed(tokenizer=part_of(bundle.config, "tokenizer", run.init_from))
        self.run = run
        self.data = self.data_type(
            run.task.source(run.data), run.tokenizer, run.loader, run.cache_dir, run.seed,
            tokenizer, **self.data_settings(),
        )  # fmt: skip
        self.data.rank_batches = run.trainer.rank_batches(self.step_batches)
        self.final = run.task.final or FinalOptions(splits=[])
        self.data.scored = [*dict.fromkeys(["val", *self.final.splits])]
        tokenizer = self.data.tokenizer  # trains it if there is none
        seed_everything(run.seed, verbose=False)
        self.sizes = Vocabularies.of(tokenizer)
        self.model: Any = run.architecture.build(self.sizes)
        load_weights(run, bundle, self.model, tokenizer)
        self.data.load()
        self.rows = self.data.rows("val")
        # val first: it may set a threshold for the others
        splits = sorted(self.final.splits, key=lambda split: split != "val")
        self.scored = {split: self.data.rows(split) for split in splits}
        for split, rows in self.scored.items():
            if not rows.references:
                raise UserError(f"task.final.splits: the {split} split has no references")
        run_dir = Path(run.run_dir)
        config = deepcopy(dict(run.settings))  # the data decides some: a threshold may be added
        copies = config.get("task", {}).get("copy_letterless", False)
        if copies is None:
            config["task"]["copy_letterless"] = self.data.copies_letterless
        if copies is not False and (found := found_in_training(self.data)):
            config["text_options"] = found  # of a translation
        bundle_type: Any = import_path(run.task.bundle)
        self.bundle = bundle_type(self.model, tokenizer, config, {}, run_dir / "model")
        task = run.task
        optimization = Optimization(
            run.optimizer,
            run.schedule(),
            task.teacher_forcing,
            run.seed,
            run.parameter_groups,
            task.terms(),
            run.trainer.gradient_clip_val,
        )
        optimization.make_optimizer(
            self.model, fused=False
        )  # checks its values before the run begins
        every, limit = task.validation.every, task.validation.sentences
        validation = replace(self.validation(), every=every, limit=limit)
        self.task = self.task_type(self.model, optimization, validation, **self.task_settings())
        unit, count = self.tokens
        self.environment = environment(run.trainer)
        self.throughput = Throughput(unit, attrgetter(count))

    def data_settings(self) -> dict[str, Any]:
        """Return further arguments of this kind of data."""
        run = self.run
        return join_of(run.data, run.tokenizer, run.loader, run.noise, run.seed)

    def task_settings(self) -> dict[str, Any]:
        """Return further arguments of this kind of task."""
        return {}

    def rebuild(self, weights: Mapping[str, Tensor]) -> None:
        """Replace a sharded model. Args: weights: complete weights, by the task's names."""
        self.model = self.bundle.model = self.task.model = self.run.architecture.build(self.sizes)
        self.task.load_state_dict(weights)

    def scored_lengths(self) -> dict[str, int]:
        """Return the longest input, in tokens, of each scored split, if it may exceed the
        training lengths."""
        read = {
            split: self.bundle.encode(rows.sources[: self.final.sentences or None])
            for split, rows in self.scored.items()
        }
        return {split: max(map(len, chain(*ids))) for split, ids in read.items()}

    def validation(self) -> Validation:
        """Return the generation and scoring of outputs in validation."""
        search: Any = self.run.generation
        greedy = GreedySearch(
            search.limit, processors=search.processors, batch_size=_VALIDATED, workers=1
        )
        generator = Generator(self.model, self.bundle.with_target_prefix(greedy))
        outputs = partial(generated, generator, self.bundle.tokenizer.decode_target)
        return Validation(outputs, self.run.task.scorer, lambda: self.rows.references)

    def final_scores(self) -> dict[str, Any]:
        """Return scores of the bundle on the configured splits, with its own search."""
        scores: dict[str, Any] = {}
        count = 8 if self.run.trainer.fast_dev_run else self.final.sentences or None
        for split, rows in self.scored.items():
            with progress(f"scoring {split}", self.bundle.unit) as advance:
                scores |= self.scores(split, rows, count, advance)
        return scores | ({"search": str(self.run.generation)} if scores else {})

    def scores(
        self, split: str, rows: Any, count: int | None, on_progress: Progress
    ) -> dict[str, Any]:
        """Return scores of the bundle on the first `count` rows of a split, or on all."""
        outputs = self.bundle.outputs(rows.first(count), self.run.generation, on_progress)
        return named(outputs.scores(self.run.task.scorer), split)

    def samples(self) -> list[tuple[str, str, str]]:
        """Return source, output and reference of some rows of the last validation."""
        sources = self.rows.sources
        return [(sources[s.row], s.hypothesis, s.references[0]) for s in self.task.samples]


def join_of(
    data: Any, tokenizer: TokenizerConfig, loader: BatchLimits, noise: Any = None, seed: int = 0
) -> dict[str, Any]:
    """Return the arguments `join` and `learnt` of `Seq2SeqData` for noise, or documents' `join`.

    Of a mixture, return `parts` with those of each source.

    Args: as of `TrainingSettings`.
    """
    if sources := getattr(data, "sources", None):
        rest = tokenizer, loader, noise, seed
        parts = {name: join_of(one, *rest) for name, one in sources.items()}
        return {"parts": parts, "learnt": noise and noise.learnt}
    if noise is not None and (join := noise.rows(data, seed)):
        return {"join": join, "learnt": noise.learnt}
    if not getattr(data, "documents", None):
        return {}
    return {"join": import_path(_DOCUMENTS, "data.documents")(data, tokenizer, loader)}


def setup_of(run: TrainingSettings) -> Setup:
    """Return the setup of the run's task."""
    task, guided = run.task, run.task.alignment
    path = (task.setup, "task") if guided.links is None else (guided.setup, "task.alignment")
    setup: Setup = import_path(*path)(run)
    return setup
