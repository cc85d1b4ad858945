"""Recurrent span model, with multi-head attention from context to question."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from torch import Tensor

from seqattn.attention.base import Attention, AttentionFactory
from seqattn.attention.masks import Mask
from seqattn.checking import BadValue, Dropout, Width
from seqattn.extras.answers.span_base import SpanInput
from seqattn.extras.answers.span_matching import MatchingModel, ReadingShape
from seqattn.layers.embedding import Embedding, make_table
from seqattn.layers.rnn_encoder import RecurrentEncoder
from seqattn.layers.rnn_layer import Cell, Layers, StepDropout
from seqattn.models.stack import Slots


@dataclass(frozen=True)
class SpanRecurrentConfig(ReadingShape):
    """Settings of a recurrent span model.

    Args:
        cell: lstm or gru.
        dim: width D of embeddings and all features, both directions together; even.
        encoder_layers: depth of the encoders of question and context.
        model_layers: depth of the second encoder, over question-aware context features.
        dropout: share dropped on embeddings and between layers.
        word_match, word_clues, characters, hidden_words, matching, joint_spans: see `ReadingShape`.
        word_dropout: as in `Embedding`.
    """

    cell: Cell = "lstm"
    dim: Width = 128
    encoder_layers: Layers = 1
    model_layers: Layers = 1
    dropout: Dropout = 0.3
    word_dropout: Dropout = 0.0

    output: ClassVar[str] = "spans"
    attention_type: ClassVar[type] = Attention
    uses_positions: ClassVar[bool] = False
    one_vocabulary: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim % 2:
            raise BadValue("dim", f"must be even, got {self.dim}")

    @property
    def attentions(self) -> dict[str, int]:
        """Number of attentions by slot."""
        return {"cross": 1}

    def build(self, vocabulary_size: int, slots: Slots) -> "SpanRecurrent":
        """Build a model for a vocabulary of this size.

        Args:
            vocabulary_size: joint vocabulary of questions and contexts.
            slots: one cross-attention, from context to question.
        """
        return SpanRecurrent(self, vocabulary_size, slots.cross[0])


class SpanRecurrent(MatchingModel):
    """A bidirectional reader, as in DrQA (Chen et al. 2017, arXiv 1704.00051) and BiDAF (Seo et al.
    2017, arXiv 1611.01603).

    Args:
        config: settings.
        vocabulary_size: joint vocabulary of questions and contexts.
        attention: factory of the attention from context to question.
    """

    def __init__(
        self, config: SpanRecurrentConfig, vocabulary_size: int, attention: AttentionFactory
    ) -> None:
        dim = config.dim
        super().__init__(config, dim, attention)
        self.config = config
        self.dropout = StepDropout(config.dropout, variational=False)
        table = make_table(vocabulary_size, dim)
        self.embedding = Embedding(table, self.dropout, word_dropout=config.word_dropout)
        width = dim if self.word_match is None else self.word_match.width
        reader = partial(RecurrentEncoder, config.cell, dim=dim, dropout=self.dropout)
        self.question_reader = reader(input_dim=dim, layers=config.encoder_layers)
        self.context_reader = reader(input_dim=width, layers=config.encoder_layers)
        self.model_reader = reader(input_dim=dim, layers=config.model_layers)

    def read_apart(self, batch: SpanInput, own: Mask, mask: Mask) -> tuple[Tensor, Tensor]:
        question, context = self.embedded(batch, own, mask)
        if self.word_match is not None:
            context = self.word_match(context, question, own.real, batch.match)
        encoded = self.question_reader(question, own.real).outputs
        return self.dropout(encoded), self.dropout(self.context_reader(context, mask.real).outputs)

    def read_again(self, joined: Tensor, mask: Mask) -> Tensor:
        features = self.model_reader(self.dropout(joined.relu()), mask.real).outputs
        return self.dropout(features)
