"""Training of an encoder-decoder on pairs of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from seqattn.analysis.heatmaps import Sentence, attention_heatmaps
from seqattn.data.module import Seq2SeqData
from seqattn.data.options import LoaderOptions
from seqattn.data.reading import read_sources
from seqattn.data.squad import AnswerPairs
from seqattn.data.tokenizer import Tokenizer
from seqattn.generation import Generator, GreedySearch
from seqattn.generation.base import generate_from_windows
from seqattn.metrics.text import named
from seqattn.models.base import Seq2SeqModel
from seqattn.runs.fitting import Fitting
from seqattn.runs.search import BatchedSearch
from seqattn.runs.task_options import TextGeneration
from seqattn.tasks.seq2seq import Seq2SeqTask, TextValidation
from seqattn.training.callbacks import Throughput

if TYPE_CHECKING:
    from seqattn.runs.train import Training

_VALIDATED = 256  # sentences that greedy validation generates at once


class TextFitting(Fitting):
    """What training on pairs of texts takes; questions become pairs.

    Args:
        options: the task.
        run: its settings.
        tokenizer: one that is ready; None to train one.
    """

    data: Seq2SeqData
    model: Seq2SeqModel
    task: Seq2SeqTask
    generation: BatchedSearch

    def __init__(self, options: TextGeneration, run: Training, tokenizer: Tokenizer | None) -> None:
        super().__init__(run)
        self.options = options
        self.throughput = Throughput()
        assert isinstance(run.loader, LoaderOptions)  # which `Training` made sure of
        source = AnswerPairs(run.data) if options.reads == "questions" else run.data
        self.data = Seq2SeqData(
            source, run.tokenizer, run.loader, run.cache_dir, run.seed, tokenizer
        )

    def make_task(self) -> None:
        options = self.options
        # made now, since it is used only once training is over
        self.generator = self.generation.over(self.model)
        self._texts = self.data.rows("val")
        search: Any = self.generation.search
        greedy = GreedySearch(search.limit, processors=search.processors)
        validation = TextValidation(
            Generator(self.model, greedy, _VALIDATED),
            options.scorer,
            self.data.tokenizer.decode_target,
            lambda: self._texts.references,
            every=options.validation.every,
            limit=options.validation.sentences,
        )
        self.task = Seq2SeqTask(self.model, self.optimization(), validation)

    def longest(self) -> list[tuple[str, str, int, int | None]]:
        limits = (self.model.max_source_length, self.model.max_target_length)
        sides = ("source", "target")
        return [
            (side, "loader.max_length", longest, limit)
            for side, longest, limit in zip(sides, self.data.longest, limits, strict=True)
        ]

    def scores(self, count: int | None) -> dict[str, Any]:
        sources, references = self._texts.sources[:count], self._texts.references[:count]
        self.model.to(self.task.device)
        found = generate_from_windows(self.generator, self._read(sources))
        hypotheses = self.data.tokenizer.decode_target([best[0].ids for best in found])
        return named(self.options.scorer.score(hypotheses, references, sources), "val")

    def _read(self, texts: Sequence[str]) -> list[list[list[int]]]:
        return read_sources(texts, self.data.tokenizer, self.data.options)

    def samples(self) -> list[tuple[str, str, str]]:
        sources = self._texts.sources
        return [(sources[s.row], s.hypothesis, s.references[0]) for s in self.task.samples]

    def draw(self) -> Figure | None:
        """The cross-attention of the first validation pair with a source."""
        tokenizer, texts = self.data.tokenizer, self._texts
        row = next((n for n, text in enumerate(texts.sources) if text.strip()), None)
        if row is None:
            return None
        source = self._read(texts.sources[row : row + 1])[0][0]
        target = tokenizer.encode_target(texts.targets[row : row + 1])[0]
        training = self.model.training
        self.model.eval()
        heatmaps = attention_heatmaps(
            self.model,
            Sentence(source, tokenizer.source_pieces(source)),
            Sentence(target, tokenizer.target_pieces(target)),
            only=["cross"],
        )
        self.model.train(training)
        return heatmaps.figures.get("cross")
