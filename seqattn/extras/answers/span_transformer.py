"""Transformer span model, with any encoder attention and position scheme."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from seqattn.attention.base import Mixer
from seqattn.attention.masks import Mask
from seqattn.checking import Depth, Width
from seqattn.extras.answers.span_base import SpanInput
from seqattn.extras.answers.span_matching import MatchingModel, ReadingShape
from seqattn.layers.embedding import Embedding, make_table
from seqattn.layers.transformer_layer import LayerShape
from seqattn.models.stack import Encoder, Slots, with_position
from seqattn.ops.layers import Dropout, Linear


@dataclass(frozen=True)
class SpanTransformerConfig(LayerShape, ReadingShape):
    """Settings of a Transformer span model.

    Args:
        dim: width D.
        ffn_dim, activation, norm, pre_norm, dropout, checkpoint_activations, word_dropout,
        drop_heads, layer_drop, bias, branch_norm: as in `LayerShape`.
        encoder_layers: layers that encode question and context, shared by both.
        model_layers: layers over the question-aware context features.
        word_match, word_clues, characters, hidden_words, matching, joint_spans: see `ReadingShape`.
    """

    dim: Width = 128
    ffn_dim: Width = 256
    encoder_layers: Depth = 2
    model_layers: Depth = 3

    output: ClassVar[str] = "spans"
    attention_type: ClassVar[type] = Mixer
    uses_positions: ClassVar[bool] = True
    one_vocabulary: ClassVar[bool] = True

    @property
    def attentions(self) -> dict[str, int]:
        """Number of attentions by slot."""
        return {"encoder": self.encoder_layers + self.model_layers, "cross": 1}

    def build(self, vocabulary_size: int, slots: Slots) -> "SpanTransformer":
        """Build a model for a vocabulary of this size.

        Args:
            vocabulary_size: joint vocabulary of questions and contexts.
            slots: encoder attentions of both stacks, one cross-attention, and the position scheme.
        """
        return SpanTransformer(self, vocabulary_size, slots)


class SpanTransformer(MatchingModel):
    """Shared layers for question and context, and further layers over both, as in QANet (Yu et al.
    2018, arXiv 1804.09541).

    With separate encoding, every context token attends to every question token, whatever the
    layers' attention sees (a window, a bucket), in S*Q rather than (S+Q)^2 time; and matching does
    not have to be learned from a few thousand questions, as it would in a joint sequence.

    Args:
        config: settings.
        vocabulary_size: joint vocabulary of questions and contexts.
        slots: encoder attentions of both stacks, one cross-attention, and the position scheme.
    """

    def __init__(self, config: SpanTransformerConfig, vocabulary_size: int, slots: Slots) -> None:
        dim, first = config.dim, config.encoder_layers
        super().__init__(config, dim, slots.cross[0])
        self.config = config
        stacks = with_position(
            slots.position,
            lambda position: Encoder(config, slots.encoder[:first], position),
            lambda position: Encoder(config, slots.encoder[first:], position),
        )
        self.encoder: Encoder = next(stacks)
        self.reader: Encoder = next(stacks)
        self.dropout = Dropout(config.dropout)
        table = make_table(vocabulary_size, dim)
        position, words = self.encoder.position, config.word_dropout
        self.embedding = Embedding(table, self.dropout, position, words)
        self.segments = make_table(2, dim)
        self.matched = Linear(self.word_match.width, dim) if self.word_match else None
        limits = [self.encoder.max_length, self.reader.max_length]
        self.max_source_length = min((n for n in limits if n is not None), default=None)

    def read_apart(self, batch: SpanInput, own: Mask, mask: Mask) -> tuple[Tensor, Tensor]:
        question, context = self.embedded(batch, own, mask)
        question, context = question + self.segments.weight[0], context + self.segments.weight[1]
        if self.word_match is not None and self.matched is not None:
            matches = self.word_match(context, question, own.real, batch.match)
            context = context + self.dropout(self.matched(matches))
        return self.encoder(question, own), self.encoder(context, mask)

    def read_again(self, joined: Tensor, mask: Mask) -> Tensor:
        joined = self.reader.position.embed(self.dropout(joined), mask.query_positions)
        return self.reader(joined, mask)
