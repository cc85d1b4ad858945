"""The recurrent encoder-decoder, with any alignment of the Bahdanau and Luong family."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqattn.attention.alignment import AlignmentFactory
from seqattn.errors import UserError
from seqattn.layers.embedding import make_table
from seqattn.layers.reader import RecurrentReader
from seqattn.layers.recurrent import StepDropout, parts_of
from seqattn.models.base import PAD, Attended, Memory, Seq2SeqModel, State
from seqattn.models.bridge import Bridge
from seqattn.models.copying import Copying, SourceWords, check_joint
from seqattn.models.recurrent_decoder import ORDERS, DecoderShape, RecurrentDecoder
from seqattn.models.recurrent_state import Reading, RecurrentState
from seqattn.models.recurrent_trail import Trail

SHARING = ("all", "target", "none")


@dataclass(frozen=True)
class RecurrentConfig:
    """The shape of a recurrent encoder-decoder.

    Args:
        cell: lstm or gru.
        dim: width D of embeddings, and of the features that the output layer reads.
        encoder_dim: width of the encoder's outputs, both directions together; None for `dim`.
        decoder_dim: width of the decoder's states; None for `dim`.
        encoder_layers: depth of the encoder.
        decoder_layers: depth of the decoder.
        bidirectional: half of the encoder's width reads backwards.
        order: `before` (Bahdanau: the state before the step asks) or `after` (Luong: the state
            after it); None for the attention's own.
        input_feeding: Luong's order alone: the features of a step are an input of the next.
        dropout: share dropped on embeddings, between layers and on the features.
        variational: one dropout mask for all steps of a sentence.
        share_embeddings: `all` (source, target and output are one table: a joint vocabulary),
            `target` (target and output), or `none`.
        copy: a target token may be copied from the source, as `Copying` says: a joint vocabulary,
            and an attention whose weights sum to 1.

    Raises:
        UserError: for a width or depth below 1, or a word that is not one of these.
    """

    cell: str = "lstm"
    dim: int = 256
    encoder_dim: int | None = None
    decoder_dim: int | None = None
    encoder_layers: int = 1
    decoder_layers: int = 1
    bidirectional: bool = True
    order: str | None = None
    input_feeding: bool = False
    dropout: float = 0.2
    variational: bool = False
    share_embeddings: str = "all"
    copy: bool = False

    def __post_init__(self) -> None:
        for name in ("dim", "encoder_dim", "decoder_dim", "encoder_layers", "decoder_layers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"model.{name} must be at least 1, got {value}")
        if self.order is not None and self.order not in ORDERS:
            raise UserError(f"model.order must be before, after or null, got {self.order}")
        if self.share_embeddings not in SHARING:
            raise UserError(
                f"model.share_embeddings must be one of {', '.join(SHARING)}, got "
                f"{self.share_embeddings}"
            )

    def build(
        self, source_size: int, target_size: int, joint: bool, attention: AlignmentFactory
    ) -> "Recurrent":
        """A model over vocabularies of these sizes, one vocabulary where `joint`."""
        if self.share_embeddings == "all" and not joint:
            raise UserError(
                "model.share_embeddings=all needs one vocabulary for both sides; set "
                "tokenizer.joint=true, or model.share_embeddings=target"
            )
        if self.copy:
            check_joint(joint)
        return Recurrent(self, source_size, target_size, attention)


class Recurrent(Seq2SeqModel):
    """The encoder-decoders of Bahdanau et al. 2015 (arXiv 1409.0473) and Luong et al. 2015
    (arXiv 1508.04025), and without attention of Sutskever et al. 2014 (arXiv 1409.3215).

    Args:
        config: the shape.
        source_size: source vocabulary.
        target_size: target vocabulary V; the same table as the source's where all are shared.
        attention: makes the decoder's alignment.

    Raises:
        UserError: for a shape that cannot be.
    """

    feeds_itself = True

    def __init__(
        self,
        config: RecurrentConfig,
        source_size: int,
        target_size: int,
        attention: AlignmentFactory,
    ) -> None:
        super().__init__()
        memory_dim, hidden_dim = config.encoder_dim or config.dim, config.decoder_dim or config.dim
        alignment = attention(query_dim=hidden_dim, memory_dim=memory_dim)
        order = config.order or ("before" if alignment.before else "after")
        if order == "before" and config.input_feeding:
            raise UserError(
                "model.input_feeding=true is Luong's; in Bahdanau's order the context is fed "
                "already: set model.order=after, or model.input_feeding=false"
            )
        self.config = config
        self.dropout = StepDropout(config.dropout, config.variational)
        self.encoder = RecurrentReader(
            config.cell, config.dim, memory_dim, config.encoder_layers, self.dropout,
            config.bidirectional,
        )  # fmt: skip
        shape = DecoderShape(
            config.cell, config.dim, hidden_dim, config.decoder_layers, order, config.input_feeding
        )
        self.decoder = RecurrentDecoder(shape, alignment, self.dropout)
        depth = config.encoder_layers * memory_dim
        self.bridge = Bridge(depth, hidden_dim, config.decoder_layers, parts_of(config.cell))
        target_table = make_table(target_size, config.dim)
        shared = config.share_embeddings == "all"
        source_table = target_table if shared else make_table(source_size, config.dim)
        self.source_embedding = WordEmbedding(source_table, self.dropout)
        self.target_embedding = WordEmbedding(target_table, self.dropout)
        self.output = nn.Linear(config.dim, target_size, bias=False)
        if config.share_embeddings == "none":
            nn.init.xavier_uniform_(self.output.weight)
        else:
            self.output.weight = target_table.weight
        self.gives_weights = alignment.has_weights
        if config.copy:
            if not (alignment.has_weights and alignment.normalised):
                raise UserError(
                    "model.copy=true needs an attention whose weights over the source sum to 1, "
                    "and this one has none; set attention=bahdanau or attention=luong_general"
                )
            self.copying = Copying(alignment.context_dim + hidden_dim + config.dim)

    def encode(self, ids: Tensor) -> Memory:
        real = ids != PAD
        outputs, last = self.encoder(self.source_embedding(ids), real)
        return Memory(outputs, real, ids, last)

    def start(self, memory: Memory, beams: int = 1, cached: bool = True) -> RecurrentState:
        assert memory.last is not None
        source = self.decoder.cross_attention.project(memory.outputs, memory.real)
        first = self.bridge(memory.last)
        layers = [tuple(part.repeat_interleave(beams, dim=0) for part in h) for h in first]
        rows = layers[0][0].shape[0]
        fed = None
        if self.config.input_feeding:
            fed = layers[0][0].new_zeros(rows, self.config.dim)
        steps = torch.zeros(rows, dtype=torch.long, device=memory.ids.device)
        words = SourceWords.of(memory.ids) if self.copying is not None else None
        return RecurrentState(source, layers, fed, steps, beams, cached, words=words)

    def features(self, ids: Tensor, state: State, teacher_forcing: float = 1.0) -> Tensor:
        assert isinstance(state, RecurrentState)
        x, reading, feed = self._read(ids, state, teacher_forcing)
        return reading.as_given(self.decoder(x, reading, state, feed))

    def features_with_weights(
        self, ids: Tensor, state: State, teacher_forcing: float = 1.0
    ) -> Attended:
        assert isinstance(state, RecurrentState)
        x, reading, feed = self._read(ids, state, teacher_forcing)
        seen = self.decoder.with_weights(x, reading, state, feed)
        return Attended(*(reading.as_given(part) for part in seen))

    def _read(
        self, ids: Tensor, state: RecurrentState, teacher_forcing: float
    ) -> tuple[Tensor, Reading, "_OwnWords | None"]:
        reading = state.advance(ids)
        x = self.target_embedding(reading.ids)
        feed = _OwnWords(self, x, teacher_forcing, state) if teacher_forcing < 1 else None
        return x, reading, feed


class WordEmbedding(nn.Module):
    """Ids to vectors scaled by sqrt(D), and dropout; recurrence itself says where a word stands.

    Args:
        table: the (V, D) table, which two embeddings and the output may share.
        dropout: of the model.
    """

    def __init__(self, table: nn.Embedding, dropout: StepDropout) -> None:
        super().__init__()
        self.table = table
        self.dropout = dropout
        self.scale = math.sqrt(table.embedding_dim)

    def forward(self, ids: Tensor) -> Tensor:
        """Ids (B, T) -> (B, T, D)."""
        out: Tensor = self.dropout(F.embedding(ids, self.table.weight) * self.scale)
        return out


class _OwnWords:
    """Scheduled sampling (Bengio et al. 2015, arXiv 1506.03099): a coin for every token.

    Args:
        model: whose likeliest word is read where the given one is not.
        x: (B, T, D) the given words.
        ratio: share of them that is read.
        state: the decoder's.
    """

    def __init__(self, model: Recurrent, x: Tensor, ratio: float, state: RecurrentState) -> None:
        self.model = model
        self.x = x
        self.state = state
        self.given = torch.rand(*x.shape[:2], 1, device=x.device) < ratio

    def __call__(self, t: int, trail: Trail) -> Tensor:
        """The words (B, D) to read at step t, after the steps before."""
        with torch.no_grad():
            if self.model.copying is None:
                logits = self.model.output(trail.features[-1])
            else:
                logits = self.model.scores(trail.last(self.state.beams), self.state)[:, 0]
            logits[:, PAD] = -torch.inf
            own = logits.argmax(dim=1)
        word = self.model.target_embedding(own[:, None])[:, 0]
        return torch.where(self.given[:, t], self.x[:, t], word)
