"""A run on pairs of texts: translation, summarization, generative question answering."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from seqattn.analysis.look import Sentence, look
from seqattn.cli.build import build_generator, make, optimization
from seqattn.cli.job import Job
from seqattn.data.module import Seq2SeqData
from seqattn.data.reading import read_sources
from seqattn.generation import Generator, GreedySearch
from seqattn.generation.windows import generate_from_windows
from seqattn.metrics.text import named
from seqattn.models.base import Seq2SeqModel
from seqattn.tasks.seq2seq import Seq2SeqTask, Validation
from seqattn.training.callbacks import Throughput

Config = dict[str, Any]


class PairsJob(Job):
    """The part of a run that knows it learns from pairs of texts.

    Args:
        config: resolved.
        data: set up.
        model: initialised.
    """

    task: Seq2SeqTask

    def __init__(self, config: Config, data: Seq2SeqData, model: Seq2SeqModel) -> None:
        self.data = data
        self.model = model
        self.throughput = Throughput()
        self.scorer = make(config["task"]["scorer"])
        self._texts = data.rows("val")
        # made now, since it is used only once training is over
        self.generator = build_generator(config["generation"], model)
        plan, wanted = config["task"]["validation"], config["generation"]
        search = GreedySearch(make(wanted["limit"]), wanted["no_repeat_ngram"])
        validation = Validation(
            Generator(model, search, batch_size=256),
            self.scorer,
            data.tokenizer.decode_target,
            lambda: self._texts.references,
            plan["every"],
            plan["sentences"],
        )
        self.task = Seq2SeqTask(model, optimization(config, model), validation)

    def scores(self, count: int | None) -> Config:
        sources, references = self._texts.sources[:count], self._texts.references[:count]
        self.model.to(self.task.device)
        found = generate_from_windows(self.generator, self._read(sources))
        hypotheses = self.data.tokenizer.decode_target([h[0].ids for h in found])
        return named(self.scorer.score(hypotheses, references, sources), "val")

    def _read(self, texts: Sequence[str]) -> list[list[list[int]]]:
        return read_sources(texts, self.data.tokenizer, self.data.options.sources)

    def samples(self) -> list[tuple[str, str, str]]:
        sources = self._texts.sources
        return [(sources[s.row], s.hypothesis, s.reference) for s in self.task.samples]

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
        views = look(
            self.model,
            Sentence(source, tokenizer.source_pieces(source)),
            Sentence(target, tokenizer.target_pieces(target)),
            only=["cross"],
        )
        self.model.train(training)
        return views.figures.get("cross")
