"""Transformer encoder-decoder, assembled from attentions and a position scheme."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from seqattn.attention.base import Mixer
from seqattn.attention.heads import project_all
from seqattn.attention.masks import Mask
from seqattn.checking import Depth, Positive, Width
from seqattn.errors import UserError
from seqattn.layers.embedding import Embedding, Sharing, make_tables
from seqattn.layers.transformer_layer import LayerShape
from seqattn.models.base import Memory, Seq2SeqModel, State
from seqattn.models.head import DecoderOutput, check_joint, make_head
from seqattn.models.stack import Decoder, Encoder, PositionFactory, Slots, with_position
from seqattn.models.transformer_state import TransformerState
from seqattn.ops.layers import Dropout
from seqattn.tokens import PAD

__all__ = ["PositionFactory", "Slots", "Transformer", "TransformerConfig"]


@dataclass(frozen=True)
class TransformerConfig(LayerShape):
    """Settings of a Transformer.

    Args:
        dim: width D of encoder and decoder.
        ffn_dim, activation, norm, pre_norm, dropout, checkpoint_activations, word_dropout,
        drop_heads, layer_drop, bias, branch_norm: as in `LayerShape`.
        encoder_dim: the encoder's own width; None for `dim`.
        encoder_layers: depth of the encoder.
        decoder_layers: depth of the decoder.
        share_embeddings: `all` (source, target and output), `target` (target and output),
            `inputs` (source and target), or `none`; `all` and `inputs` need a joint vocabulary and
            equal widths.
        copy: copy target tokens from the source, see `PointerHead`; needs a joint vocabulary.
        embedding_scale: factor on embeddings; None for sqrt(D).
        embedding_norm: normalize the sum of embeddings and positions, see `Embedding`.
        output_bias: add a bias to the logits.
        output_softcap: c of logits c tanh(x / c), between -c and c; None for x.
    """

    encoder_dim: Width | None = None
    encoder_layers: Depth = 4
    decoder_layers: Depth = 4
    share_embeddings: Sharing = "all"
    copy: bool = False
    embedding_scale: Positive | None = None
    embedding_norm: bool = False
    output_bias: bool = False
    output_softcap: Positive | None = None

    output: ClassVar[str] = "text"
    attention_type: ClassVar[type] = Mixer
    uses_positions: ClassVar[bool] = True
    one_vocabulary: ClassVar[bool] = False

    @property
    def attentions(self) -> dict[str, int]:
        """Number of attentions by slot."""
        decoder = self.decoder_layers
        return {"encoder": self.encoder_layers, "decoder": decoder, "cross": decoder}

    def build(self, source_size: int, target_size: int, joint: bool, slots: Slots) -> "Transformer":
        """Build a Transformer for vocabularies of these sizes, a shared one if `joint`."""
        check_joint(self.share_embeddings, self.copy, joint)
        return Transformer(self, source_size, target_size, slots)


class Transformer(Seq2SeqModel):
    """Encoder-decoder of Vaswani et al. 2017 (arXiv 1706.03762) with swappable attention.

    Args:
        config: settings.
        source_size: size of the source vocabulary.
        target_size: size V of the target vocabulary; equal to the source's if all are shared.
        slots: attention factories for every layer, and the position scheme.
    """

    def __init__(
        self, config: TransformerConfig, source_size: int, target_size: int, slots: Slots
    ) -> None:
        super().__init__()
        dim, encoder_dim = config.dim, config.encoder_dim or config.dim
        if config.share_embeddings in ("all", "inputs") and encoder_dim != dim:
            raise UserError(
                f"model.share_embeddings={config.share_embeddings} needs model.encoder_dim equal "
                f"to model.dim ({dim}), got {encoder_dim}; set model.share_embeddings=target"
            )
        self.config = config
        encoder_config = replace(config, dim=encoder_dim)
        stacks = with_position(
            slots.position,
            lambda position: Encoder(encoder_config, slots.encoder, position),
            lambda position: Decoder(config, encoder_dim, slots._replace(position=position)),
        )
        self.encoder: Encoder = next(stacks)
        self.decoder: Decoder = next(stacks)
        sizes = (source_size, encoder_dim), (target_size, dim)
        source, target, tied = make_tables(config.share_embeddings, *sizes)
        dropout, words, scale = (
            Dropout(config.dropout), config.word_dropout, config.embedding_scale
        )  # fmt: skip
        norms = (
            part.make_norm() if config.embedding_norm else None for part in (encoder_config, config)
        )
        self.source_embedding = Embedding(
            source, dropout, self.encoder.position, words, scale, next(norms)
        )
        self.target_embedding = Embedding(
            target, dropout, self.decoder.position, words, scale, next(norms)
        )
        last = self.decoder.layers[-1:]
        self.has_weights = any(layer.cross_attention.abilities.copies for layer in last)
        if config.copy and not self.has_weights:
            raise UserError(
                "model.copy=true needs cross-attention weights that sum to 1 in the last decoder "
                "layer; set attention@cross_attention=mha, and model.decoder_layers to 1 or more"
            )
        evidence_dim = 3 * dim if config.copy else None
        self.head = make_head(
            dim, target_size, tied, evidence_dim, config.output_bias, config.output_softcap
        )
        self.max_source_length = self.encoder.max_length
        self.max_target_length = self.decoder.max_length

    def encode(self, ids: Tensor) -> Memory:
        real = ids != PAD
        mask = Mask.full(real)
        x = self.source_embedding(ids, mask.query_positions)
        return Memory(self.encoder(x, mask), real, ids)

    def start(self, memory: Memory, beams: int = 1, cached: bool = True) -> TransformerState:
        layers, mask = self.decoder.layers, Mask.full(memory.real)
        source = project_all([layer.cross_attention for layer in layers], memory.outputs)
        if cached:  # they are read at every step
            source = [
                layer.cross_attention.prepared(pair, mask, layer.no_position)
                for layer, pair in zip(layers, source)
            ]
        return TransformerState(
            source,
            mask,
            [layer.self_attention.make_cache(beams) for layer in layers] if cached else None,
            beams,
            source_tokens=self.head.source_tokens(memory.ids),
            can_crop=cached and all(layer.self_attention.abilities.crop for layer in layers),
            positions=[part.prepared() for part in self.decoder.positions()] if cached else None,
        )

    def features(
        self, ids: Tensor, state: State, teacher_forcing: float = 1.0, need_weights: bool = False
    ) -> DecoderOutput:
        """Decode as in `Seq2SeqModel.features`; in the evidence, the features act as the state."""
        assert isinstance(state, TransformerState)
        if teacher_forcing < 1:
            raise UserError("a Transformer does not support teacher_forcing below 1")
        mask = state.advance(ids)
        x = self.target_embedding(ids, mask.query_positions)
        features, attended = self.decoder(x, mask, state, need_weights)
        if not need_weights:
            return DecoderOutput(features)
        evidence = torch.cat((attended.output, features, x), dim=-1)
        return DecoderOutput(features, attended.weights, evidence)
