"""Data of a training run on questions with their contexts."""

from collections.abc import Iterable
from typing import Any

import datasets

from seqattn.data.base import Source
from seqattn.data.module import Seq2SeqData
from seqattn.data.vocabulary import TokenizerConfig
from seqattn.errors import UserError
from seqattn.extras.answers.span_batch import Questions, SpanEncoder
from seqattn.extras.answers.span_dataset import SpanDataset, tokenize_questions
from seqattn.extras.answers.span_options import SpanOptions
from seqattn.extras.answers.span_text import cut_words


class SpanData(Seq2SeqData):
    """Questions on contexts, with a shared vocabulary; see `Seq2SeqData`."""

    options: Any
    default_options = SpanOptions
    unit = "questions"

    def __init__(
        self, source: Source, tokenizer_config: TokenizerConfig, *rest: Any, **more: Any
    ) -> None:
        if not tokenizer_config.joint:
            raise UserError("questions and contexts share a vocabulary; set tokenizer.joint=true")
        super().__init__(source, tokenizer_config, *rest, **more)

    def rows(self, split: str) -> Questions:
        """Return the raw questions of a split, with nothing left out."""
        return Questions.of(self._rows(split))

    def _has_equal_sides(self) -> bool:
        return False

    def encoder(self) -> SpanEncoder:
        """Encoder of any questions into batches like those of this data."""
        return SpanEncoder(self.tokenizer, self.options)

    def _learnt_texts(self, rows: datasets.Dataset) -> tuple[Iterable[str], Iterable[str]]:
        # each distinct text once, in the form that is tokenized
        columns = (dict.fromkeys(rows[name]) for name in ("question", "context"))
        questions, contexts = ([cut_words(text).text for text in texts] for texts in columns)
        return questions, contexts

    def _dataset(self, split: str) -> SpanDataset:
        tables = tokenize_questions(self._rows(split), self.tokenizer, self.cache_dir / "tokens")
        return SpanDataset(*tables, self.options, drops=split == "train")
