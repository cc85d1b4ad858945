"""A recurrent reader: the context asks the question by multi-head attention."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from torch import Tensor

from seqattn.attention.base import Attention, AttentionFactory
from seqattn.attention.masks import Mask
from seqattn.checking import Dropout, Width
from seqattn.layers.embedding import Embedding, make_table
from seqattn.layers.rnn_encoder import RecurrentEncoder
from seqattn.layers.rnn_layer import Cell, Layers, StepDropout
from seqattn.models.span_base import SpanInput
from seqattn.models.span_matching import MatchingModel, ReadingShape
from seqattn.models.stack import Slots


@dataclass(frozen=True)
class SpanRecurrentConfig(ReadingShape):
    """The shape of a recurrent span model.

    Args:
        cell: lstm or gru.
        dim: width D of embeddings and of all that is read, both directions together; even.
        encoder_layers: depth of the readers of question and context.
        model_layers: depth of what reads the context again with the question in mind.
        dropout: share dropped on embeddings and between layers.
        word_match, word_clues, characters, hidden_words, matching, joint_spans: as `ReadingShape`.
        word_dropout: as `Embedding`.
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

    @property
    def attentions(self) -> dict[str, int]:
        """How many attentions each slot holds."""
        return {"cross": 1}

    def build(self, vocabulary_size: int, slots: Slots) -> "SpanRecurrent":
        """A model over a vocabulary of this size.

        Args:
            vocabulary_size: of questions and contexts together.
            slots: one cross-attention, by which the context asks the question.
        """
        return SpanRecurrent(self, vocabulary_size, slots.cross[0])


class SpanRecurrent(MatchingModel):
    """A bidirectional reader, as DrQA's (Chen et al. 2017, arXiv 1704.00051) and BiDAF's (Seo et
    al. 2017, arXiv 1611.01603).

    Args:
        config: the shape.
        vocabulary_size: of questions and contexts together.
        attention: makes that by which the context asks the question.
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
        asked = self.question_reader(question, own.real).outputs
        return self.dropout(asked), self.dropout(self.context_reader(context, mask.real).outputs)

    def read_again(self, joined: Tensor, mask: Mask) -> Tensor:
        features = self.model_reader(self.dropout(joined.relu()), mask.real).outputs
        return self.dropout(features)
