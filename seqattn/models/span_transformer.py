"""A Transformer that answers by spans, with any encoder attention and position scheme."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from seqattn.attention.base import Mixer
from seqattn.attention.masks import Mask
from seqattn.checking import Depth, Width
from seqattn.layers.embedding import Embedding, make_table
from seqattn.layers.transformer_layer import LayerShape
from seqattn.models.span_base import SpanInput
from seqattn.models.span_matching import MatchingModel, ReadingShape
from seqattn.models.stack import Encoder, Slots
from seqattn.ops.layers import Dropout, Linear


@dataclass(frozen=True)
class SpanTransformerConfig(LayerShape, ReadingShape):
    """The shape of a span model of Transformer layers.

    Args:
        dim: width D.
        ffn_dim, activation, norm, pre_norm, dropout, checkpoint_activations, word_dropout,
        drop_heads, layer_drop: as `LayerShape`.
        encoder_layers: layers that read question and context, the same for both.
        model_layers: layers that read the context again with the question in mind.
        word_match, word_clues, characters, hidden_words, matching, joint_spans: as `ReadingShape`.
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
        """How many attentions each slot holds."""
        return {"encoder": self.encoder_layers + self.model_layers, "cross": 1}

    def build(self, vocabulary_size: int, slots: Slots) -> "SpanTransformer":
        """A model over a vocabulary of this size.

        Args:
            vocabulary_size: of questions and contexts together.
            slots: encoder attentions of both stacks, one cross-attention, and the position scheme.
        """
        return SpanTransformer(self, vocabulary_size, slots)


class SpanTransformer(MatchingModel):
    """Layers that read question and context alike, and more that read on, as in QANet (Yu et al.
    2018, arXiv 1804.09541).

    Read apart, every token of the context meets every token of the question whatever the layers'
    attention sees (a window, a bucket), in S*Q rather than (S+Q)^2 time; and what is to be matched
    need not be learnt from a few thousand questions, as in one joint sequence it must.

    Args:
        config: the shape.
        vocabulary_size: of questions and contexts together.
        slots: encoder attentions of both stacks, one cross-attention, and the position scheme.
    """

    def __init__(self, config: SpanTransformerConfig, vocabulary_size: int, slots: Slots) -> None:
        dim, first = config.dim, config.encoder_layers
        super().__init__(config, dim, slots.cross[0])
        self.config = config
        self.encoder = Encoder(config, slots.encoder[:first], slots.position)
        self.reader = Encoder(config, slots.encoder[first:], slots.position)
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
            found = self.word_match(context, question, own.real, batch.match)
            context = context + self.dropout(self.matched(found))
        return self.encoder(question, own), self.encoder(context, mask)

    def read_again(self, joined: Tensor, mask: Mask) -> Tensor:
        joined = self.reader.position.embed(self.dropout(joined), mask.query_positions)
        return self.reader(joined, mask)
