"""Setup of training an encoder-decoder on pairs of texts."""

from itertools import chain
from typing import Any

from seqattn.data.module import Seq2SeqData
from seqattn.errors import UserError
from seqattn.generation import GreedySearch
from seqattn.generation.base import Progress
from seqattn.generation.generator import Generator
from seqattn.metrics.text import named
from seqattn.training.setup import Setup
from seqattn.training.start import Start
from seqattn.training.tasks.seq2seq import Seq2SeqTask, TextValidation

_VALIDATED = 256  # sentences per batch of greedy validation


class TextSetup(Setup):
    """Setup of training an encoder-decoder on pairs of texts."""

    data_type, task_type = Seq2SeqData, Seq2SeqTask
    tokens = ("target tokens", "target_tokens")
    sides = (("source", "loader.max_length"), ("target", "loader.max_length"))

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        for split, rows in self.scored.items():
            if not rows.references:
                raise UserError(f"task.final.splits: the {split} split has no references")

    def scored_lengths(self) -> dict[str, int]:
        read = {
            split: self.bundle.encode(rows.sources[: self.final.sentences or None])
            for split, rows in self.scored.items()
        }
        return {split: max(map(len, chain(*ids))) for split, ids in read.items()}

    def validation(self) -> TextValidation:
        search: Any = self.run.generation
        greedy = GreedySearch(
            search.limit, processors=search.processors, batch_size=_VALIDATED, workers=1
        )
        return TextValidation(
            Generator(self.model, self.bundle.begun(greedy)),
            self.run.task.scorer,
            self.bundle.tokenizer.decode_target,
            lambda: self.rows.references,
        )

    def scores(self, split: str, rows: Any, count: int | None, tell: Progress) -> dict[str, Any]:
        outputs = self.bundle.outputs(rows.first(count), self.run.generation, tell)
        return named(outputs.scores(self.run.task.scorer), split)

    def samples(self) -> list[tuple[str, str, str]]:
        sources = self.rows.sources
        return [(sources[s.row], s.hypothesis, s.references[0]) for s in self.task.samples]
