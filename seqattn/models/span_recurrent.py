"""A recurrent reader: the context asks the question by multi-head attention."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from seqattn.attention.base import AttentionFactory
from seqattn.attention.masks import Mask
from seqattn.errors import UserError
from seqattn.layers.embedding import make_table
from seqattn.layers.reader import RecurrentReader
from seqattn.layers.recurrent import StepDropout
from seqattn.models.base import PAD
from seqattn.models.recurrent import WordEmbedding
from seqattn.models.span import SpanHead, SpanInput, SpanModel, SpanScores, joined_with
from seqattn.models.transformer import Slots
from seqattn.models.word_match import WordMatch
from seqattn.positions.base import Position, Stack


@dataclass(frozen=True)
class SpanRecurrentConfig:
    """The shape of a recurrent span model.

    Args:
        cell: lstm or gru.
        dim: width D of embeddings and of all that is read, both directions together; even.
        encoder_layers: depth of the readers of question and context.
        model_layers: depth of what reads the context again with the question in mind.
        dropout: share dropped on embeddings and between layers.
        word_match: whether tokens know whether their words stand in the question; see `WordMatch`.

    Raises:
        UserError: for a width or depth below 1.
    """

    cell: str = "lstm"
    dim: int = 128
    encoder_layers: int = 1
    model_layers: int = 1
    dropout: float = 0.3
    word_match: bool = True

    def __post_init__(self) -> None:
        for name in ("dim", "encoder_layers", "model_layers"):
            if getattr(self, name) < 1:
                raise UserError(f"model.{name} must be at least 1, got {getattr(self, name)}")

    def build(self, vocabulary_size: int, slots: Slots) -> "SpanRecurrent":
        """A model over a vocabulary of this size.

        Args:
            vocabulary_size: of questions and contexts together.
            slots: one cross-attention, by which the context asks the question.
        """
        return SpanRecurrent(self, vocabulary_size, slots.cross[0])


class SpanRecurrent(SpanModel):
    """A bidirectional reader of question and context, as DrQA's (Chen et al. 2017, arXiv
    1704.00051) and BiDAF's (Seo et al. 2017, arXiv 1611.01603): both are read, the context asks the
    question, and what it hears is read again.

    Args:
        config: the shape.
        vocabulary_size: of questions and contexts together.
        attention: makes that by which the context asks the question.

    Raises:
        UserError: for a shape that cannot be.
    """

    def __init__(
        self, config: SpanRecurrentConfig, vocabulary_size: int, attention: AttentionFactory
    ) -> None:
        super().__init__()
        dim = config.dim
        self.config = config
        self.dropout = StepDropout(config.dropout, variational=False)
        self.embedding = WordEmbedding(make_table(vocabulary_size, dim), self.dropout)
        self.word_match = WordMatch(dim) if config.word_match else None
        width = dim if self.word_match is None else self.word_match.width
        reader = partial(RecurrentReader, config.cell, dim=dim, dropout=self.dropout)
        self.question_reader = reader(input_dim=dim, layers=config.encoder_layers)
        self.context_reader = reader(input_dim=width, layers=config.encoder_layers)
        self.question_attention = attention(query_dim=dim, memory_dim=dim)
        self.position = Position(Stack(dim, self.question_attention.num_heads, 1))
        self.join = nn.Linear(3 * dim, dim)
        self.model_reader = reader(input_dim=dim, layers=config.model_layers)
        self.head = SpanHead(dim)

    def forward(self, batch: SpanInput) -> SpanScores:
        asking, real = batch.question != PAD, batch.context != PAD
        question, context = self.embedding(batch.question), self.embedding(batch.context)
        if self.word_match is not None:
            context = self.word_match(context, question, asking, batch.match)
        asked = self.dropout(self.question_reader(question, asking).outputs)
        read = self.dropout(self.context_reader(context, real).outputs)
        joined = self.join(joined_with(read, self._heard(read, real, asked, asking))).relu()
        features = self.model_reader(self.dropout(joined), real).outputs
        scores: SpanScores = self.head(self.dropout(features), real, asked, asking)
        return scores

    def _heard(self, read: Tensor, real: Tensor, asked: Tensor, asking: Tensor) -> Tensor:
        """What each token of the context (B, S, D) hears from the question: (B, S, D)."""
        own = Mask.full(asking)
        steps = torch.arange(read.shape[1], device=read.device)
        mask = Mask(steps, own.key_positions, asking, real_queries=real)
        attention = self.question_attention
        heard: Tensor = attention(read, attention.project(asked), mask, self.position)
        return heard
