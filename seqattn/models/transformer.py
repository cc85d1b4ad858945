"""The Transformer encoder-decoder, assembled from attentions and a position scheme."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from seqattn.attention.base import AttentionFactory
from seqattn.attention.cache import KeysValues
from seqattn.attention.masks import Mask
from seqattn.errors import UserError
from seqattn.layers.decoder_layer import DecoderLayer
from seqattn.layers.embedding import Embedding, make_table
from seqattn.layers.encoder_layer import EncoderLayer, LayerShape
from seqattn.layers.norm import make_norm
from seqattn.models.base import PAD, Attended, Memory, Seq2SeqModel, State
from seqattn.models.copying import Copying, SourceWords, check_joint
from seqattn.models.stack import check_position, first_heads, shortest
from seqattn.models.transformer_decoder import Decoder
from seqattn.models.transformer_state import TransformerState
from seqattn.positions.base import Position, Stack

SHARING = ("all", "target", "none")


class PositionFactory(Protocol):
    """Makes a stack's own position scheme."""

    def __call__(self, stack: Stack) -> Position: ...


class Slots(NamedTuple):
    """The attentions of a Transformer, one factory per layer and slot, and its positions."""

    encoder: Sequence[AttentionFactory]
    decoder: Sequence[AttentionFactory]
    cross: Sequence[AttentionFactory]
    position: PositionFactory


@dataclass(frozen=True)
class TransformerConfig:
    """The shape of a Transformer.

    Args:
        dim: width D of encoder and decoder.
        encoder_dim: the encoder's own width; None for `dim`.
        encoder_layers: depth of the encoder.
        decoder_layers: depth of the decoder.
        ffn_dim: width inside the feed-forward sublayers.
        activation: relu, gelu or swiglu.
        norm: layernorm or rmsnorm.
        pre_norm: norms before the sublayers (and one at the end of each stack) or after them.
        dropout: share dropped on embeddings and residual branches.
        share_embeddings: `all` (source, target and output are one table: a joint vocabulary and
            equal widths), `target` (target and output), or `none`.
        checkpoint_activations: recompute layers in the backward pass to save memory.
        copy: a target token may be copied from the source, as `Copying` says: a joint vocabulary.

    Raises:
        UserError: for a width below 1 or a depth below 0.
    """

    dim: int = 256
    encoder_dim: int | None = None
    encoder_layers: int = 4
    decoder_layers: int = 4
    ffn_dim: int = 1024
    activation: str = "relu"
    norm: str = "layernorm"
    pre_norm: bool = True
    dropout: float = 0.1
    share_embeddings: str = "all"
    checkpoint_activations: bool = False
    copy: bool = False

    def __post_init__(self) -> None:
        least = {"dim": 1, "encoder_dim": 1, "ffn_dim": 1, "encoder_layers": 0, "decoder_layers": 0}
        for name, bound in least.items():
            value = getattr(self, name)
            if value is not None and value < bound:
                raise UserError(f"model.{name} must be at least {bound}, got {value}")

    def shape(self, dim: int) -> LayerShape:
        """The shape of a layer of width `dim`."""
        return LayerShape(
            dim, self.ffn_dim, self.activation, self.norm, self.pre_norm, self.dropout
        )

    def build(self, source_size: int, target_size: int, joint: bool, slots: Slots) -> "Transformer":
        """A Transformer over vocabularies of these sizes, one vocabulary where `joint`."""
        if self.share_embeddings == "all" and not joint:
            raise UserError(
                "model.share_embeddings=all needs one vocabulary for both sides; set "
                "tokenizer.joint=true, or model.share_embeddings=target"
            )
        if self.copy:
            check_joint(joint)
        return Transformer(self, source_size, target_size, slots)


class Encoder(nn.Module):
    """A stack of encoder layers. Args: as `Transformer`."""

    def __init__(self, config: TransformerConfig, dim: int, slots: Slots) -> None:
        super().__init__()
        shape = config.shape(dim)
        self.layers = nn.ModuleList(EncoderLayer(shape, factory) for factory in slots.encoder)
        self.norm = make_norm(config.norm, dim) if config.pre_norm else nn.Identity()
        self.position = slots.position(Stack(dim, first_heads(self.layers), len(self.layers)))
        check_position(self.position, self.layers)
        self.max_length = shortest(self.position, self.layers)
        self.checkpointing = config.checkpoint_activations

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        """(B, S, D) -> (B, S, D)."""
        recompute = self.checkpointing and self.training and torch.is_grad_enabled()
        for number, layer in enumerate(self.layers):
            position = self.position.at_layer(number)
            if recompute:
                x = checkpoint(layer, x, mask, position, use_reentrant=False)
            else:
                x = layer(x, mask, position)
        out: Tensor = self.norm(x)
        return out


class Transformer(Seq2SeqModel):
    """Encoder-decoder of Vaswani et al. 2017 (arXiv 1706.03762) with swappable attention.

    Args:
        config: the shape.
        source_size: source vocabulary.
        target_size: target vocabulary V; the same table as the source's where all are shared.
        slots: attention factories for every layer, and the position scheme.

    Raises:
        UserError: for a shape that cannot be.
    """

    def __init__(
        self, config: TransformerConfig, source_size: int, target_size: int, slots: Slots
    ) -> None:
        super().__init__()
        if config.share_embeddings not in SHARING:
            raise UserError(
                f"model.share_embeddings must be one of {', '.join(SHARING)}, got "
                f"{config.share_embeddings}"
            )
        encoder_dim = config.encoder_dim or config.dim
        shared = config.share_embeddings == "all"
        if shared and encoder_dim != config.dim:
            raise UserError(
                f"model.share_embeddings=all needs model.encoder_dim equal to model.dim "
                f"({config.dim}), got {encoder_dim}; set model.share_embeddings=target"
            )
        self.config = config
        self.encoder = Encoder(config, encoder_dim, slots)
        self.decoder = Decoder(config, encoder_dim, slots)
        target_table = make_table(target_size, config.dim)
        source_table = target_table if shared else make_table(source_size, encoder_dim)
        self.source_embedding = Embedding(source_table, self.encoder.position, config.dropout)
        self.target_embedding = Embedding(target_table, self.decoder.position, config.dropout)
        self.output = nn.Linear(config.dim, target_size, bias=False)
        if config.share_embeddings == "none":
            nn.init.xavier_uniform_(self.output.weight)
        else:
            self.output.weight = target_table.weight
        self.gives_weights = self.decoder.copies
        if config.copy:
            if not self.decoder.copies:
                raise UserError(
                    "model.copy=true needs a last decoder layer whose cross-attention has weights "
                    "that sum to 1; set attention@cross_attention=mha, and model.decoder_layers "
                    "to 1 or more"
                )
            self.copying = Copying(3 * config.dim)
        self.max_source_length = self.encoder.max_length
        self.max_target_length = self.decoder.max_length

    def encode(self, ids: Tensor) -> Memory:
        real = ids != PAD
        mask = Mask.full(real)
        x = self.source_embedding(ids, mask.query_positions)
        return Memory(self.encoder(x, mask), real, ids)

    def start(self, memory: Memory, beams: int = 1, cached: bool = True) -> TransformerState:
        layers = [layer for layer in self.decoder.layers if isinstance(layer, DecoderLayer)]
        source = [layer.cross_attention.project(memory.outputs) for layer in layers]
        if cached:  # read at every step
            source = [KeysValues(*(part.contiguous() for part in pair)) for pair in source]
        caches = [layer.self_attention.make_cache(beams) for layer in layers] if cached else None
        words = SourceWords.of(memory.ids) if self.copying is not None else None
        return TransformerState(source, Mask.full(memory.real), caches, beams, words=words)

    def features(self, ids: Tensor, state: State, teacher_forcing: float = 1.0) -> Tensor:
        assert isinstance(state, TransformerState)
        x, mask = self._read(ids, state, teacher_forcing)
        out: Tensor = self.decoder(x, mask, state)
        return out

    def features_with_weights(
        self, ids: Tensor, state: State, teacher_forcing: float = 1.0
    ) -> Attended:
        """As `Seq2SeqModel.features_with_weights`; the state in the evidence is the features."""
        assert isinstance(state, TransformerState)
        x, mask = self._read(ids, state, teacher_forcing)
        features, looked = self.decoder.with_weights(x, mask, state)
        return Attended(features, looked.weights, torch.cat((looked.output, features, x), dim=-1))

    def _read(
        self, ids: Tensor, state: TransformerState, teacher_forcing: float
    ) -> tuple[Tensor, Mask]:
        if teacher_forcing < 1:
            raise UserError("a Transformer reads whole targets; set teacher_forcing=1")
        mask = state.advance(ids)
        return self.target_embedding(ids, mask.query_positions), mask
