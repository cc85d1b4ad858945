"""Recurrent encoder-decoder with Bahdanau or Luong attention."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from seqattn.attention.alignment import Alignment, AlignmentFactory
from seqattn.checking import BadValue, Dropout, Width
from seqattn.errors import UserError
from seqattn.layers.embedding import Embedding, Sharing, make_tables
from seqattn.layers.rnn_encoder import RecurrentEncoder
from seqattn.layers.rnn_layer import Cell, Hidden, Layers, RecurrentLayer, StepDropout, parts_of
from seqattn.models.base import Memory, Seq2SeqModel, State
from seqattn.models.head import DecoderOutput, check_joint, make_head
from seqattn.models.recurrent_decoder import ChooseInput, Readout, RecurrentDecoder
from seqattn.models.recurrent_state import DecodedSteps, RecurrentState
from seqattn.ops.layers import Linear
from seqattn.tokens import PAD


@dataclass(frozen=True)
class RecurrentConfig:
    """Settings of a recurrent encoder-decoder.

    Args:
        cell: lstm or gru.
        dim: width D of embeddings, and of the head's input features.
        encoder_dim: width of the encoder's outputs, both directions together; None for `dim`.
        decoder_dim: width of the decoder's states; None for `dim`.
        encoder_layers: depth of the encoder, at least 1.
        decoder_layers: depth of the decoder, at least 1.
        bidirectional: add a backward direction, which takes half of the encoder's width.
        order: `before` (Bahdanau: attend from the state before the step) or `after` (Luong: from
            the state after it); None for the attention's default.
        input_feeding: only in Luong's order: the features of a step are an input of the next.
        dropout: share dropped on embeddings, between layers and on the features.
        variational: use one dropout mask for all steps of a sentence.
        share_embeddings: `all` (source, target and output, which needs a joint vocabulary),
            `target` (target and output), `inputs` (source and target), or `none`.
        copy: copy target tokens from the source, see `PointerHead`; needs a joint vocabulary and
            an attention whose weights sum to 1.
        word_dropout: as in `Embedding`.
    """

    cell: Cell = "lstm"
    dim: Width = 256
    encoder_dim: Width | None = None
    decoder_dim: Width | None = None
    encoder_layers: Layers = 1
    decoder_layers: Layers = 1
    bidirectional: bool = True
    order: Literal["before", "after"] | None = None
    input_feeding: bool = False
    dropout: Dropout = 0.2
    variational: bool = False
    share_embeddings: Sharing = "all"
    copy: bool = False
    word_dropout: Dropout = 0.0

    output: ClassVar[str] = "text"
    attention_type: ClassVar[type] = Alignment
    uses_positions: ClassVar[bool] = False
    one_vocabulary: ClassVar[bool] = False

    def __post_init__(self) -> None:
        key, width = ("encoder_dim", self.encoder_dim) if self.encoder_dim else ("dim", self.dim)
        if self.bidirectional and width % 2:
            raise BadValue(key, f"must be even with model.bidirectional=true, got {width}")

    @property
    def attentions(self) -> dict[str, int]:
        """Number of attentions by slot."""
        return {"cross": 1}

    def build(
        self, source_size: int, target_size: int, joint: bool, attention: AlignmentFactory
    ) -> "Recurrent":
        """Build a model for vocabularies of these sizes, a shared one if `joint`."""
        check_joint(self.share_embeddings, self.copy, joint)
        dim = self.dim
        widths = {"query_dim": self.decoder_dim or dim, "memory_dim": self.encoder_dim or dim}
        alignment = attention(**widths)
        model: type[Recurrent] = alignment.model_type(Recurrent)
        return model(self, source_size, target_size, alignment)


class Bridge(nn.Module):
    """Initial decoder states from the encoder's final outputs of all layers: tanh(W h + b).

    As in Bahdanau et al. 2015 (arXiv 1409.0473, appendix A.2.2), with both directions; an LSTM's
    cells have a separate map from the same outputs, without the tanh.
    """

    def __init__(self, memory_dim: int, dim: int, layers: int, parts: int) -> None:
        super().__init__()
        self.layers = layers
        self.maps = nn.ModuleList(Linear(memory_dim, layers * dim) for _ in range(parts))

    def forward(self, last: Tensor) -> list[Hidden]:
        """Map the encoder's final outputs (B, layers * D) to a state for each layer."""
        states = [part(last) for part in self.maps]
        states[0] = states[0].tanh()
        return list(zip(*(part.chunk(self.layers, dim=1) for part in states), strict=True))


class Recurrent(Seq2SeqModel):
    """The encoder-decoders of Bahdanau et al. 2015 (arXiv 1409.0473) and Luong et al. 2015
    (arXiv 1508.04025), and, without attention, Sutskever et al. 2014 (arXiv 1409.3215).

    Args:
        config: settings.
        source_size: size of the source vocabulary.
        target_size: size V of the target vocabulary; equal to the source's if all are shared.
        alignment: attention of the decoder.
    """

    feeds_itself = True

    def __init__(
        self,
        config: RecurrentConfig,
        source_size: int,
        target_size: int,
        alignment: Alignment,
    ) -> None:
        super().__init__()
        dim = config.dim
        memory_dim, hidden_dim = config.encoder_dim or dim, config.decoder_dim or dim
        attends_first = (
            alignment.attends_first if config.order is None else config.order == "before"
        )
        if attends_first and config.input_feeding:
            raise UserError(
                "model.input_feeding=true cannot be combined with model.order=before (Bahdanau's), "
                "which already feeds the context; set model.order=after, or "
                "model.input_feeding=false"
            )
        self.config = config
        self.dropout = StepDropout(config.dropout, config.variational)
        self.encoder = RecurrentEncoder(
            config.cell, dim, memory_dim, config.encoder_layers, self.dropout,
            config.bidirectional,
        )  # fmt: skip
        fed = dim if config.input_feeding else 0
        extra = alignment.context_dim if attends_first else fed
        widths = [(dim, extra), *[(hidden_dim, 0)] * (config.decoder_layers - 1)]
        layers = [RecurrentLayer(config.cell, *inputs, hidden_dim) for inputs in widths]
        readout = Readout(dim, hidden_dim, alignment.context_dim, maxout=attends_first)
        self.decoder = RecurrentDecoder(layers, alignment, readout, self.dropout, attends_first)
        depth = config.encoder_layers * memory_dim
        self.bridge = Bridge(depth, hidden_dim, config.decoder_layers, parts_of(config.cell))
        sizes = (source_size, dim), (target_size, dim)
        source, target, tied = make_tables(config.share_embeddings, *sizes)
        words = config.word_dropout
        self.source_embedding = Embedding(source, self.dropout, word_dropout=words)
        self.target_embedding = Embedding(target, self.dropout, word_dropout=words)
        self.has_weights = alignment.has_weights
        if config.copy and not (alignment.has_weights and alignment.normalized):
            raise UserError(
                "model.copy=true needs attention weights over the source that sum to 1; set "
                "attention=bahdanau or attention=luong_general"
            )
        evidence_dim = alignment.context_dim + hidden_dim + dim if config.copy else None
        self.head = make_head(dim, target_size, tied, evidence_dim)

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
        fed = layers[0][0].new_zeros(rows, self.config.dim) if self.config.input_feeding else None
        steps = torch.zeros(rows, dtype=torch.long, device=memory.ids.device)
        return RecurrentState(
            source, layers, fed, steps, beams, cached,
            source_tokens=self.head.source_tokens(memory.ids),
            past=self.decoder.cross_attention.first_past(source, beams),
        )  # fmt: skip

    def features(
        self, ids: Tensor, state: State, teacher_forcing: float = 1.0, need_weights: bool = False
    ) -> DecoderOutput:
        assert isinstance(state, RecurrentState)
        rows = state.advance(ids)
        choose_input = None
        if teacher_forcing < 1:
            like = self.target_embedding.table.weight
            count, length = rows.ids.shape
            factors = self.dropout.factors(count, length, self.config.dim, like)
            x = self.target_embedding(rows.ids, factors=factors)
            choose_input = self._sampled(x, teacher_forcing, state, factors)
        else:
            x = self.target_embedding(rows.ids)
        return rows.in_given_order(self.decoder(x, rows, state, choose_input, need_weights))

    def _sampled(
        self, x: Tensor, ratio: float, state: RecurrentState, factors: Tensor | None
    ) -> ChooseInput:
        """Return inputs by scheduled sampling (Bengio et al. 2015, arXiv 1506.03099): a step reads
        the token of x (B, T, D) with probability `ratio`, else the most probable one, with the same
        dropout `factors` (B, T, D)."""
        forced = torch.rand(*x.shape[:2], 1, device=x.device) < ratio

        def choose(t: int, done: DecodedSteps) -> Tensor:
            with torch.no_grad():
                output = done.last().output(state.beams, self.head.needs_weights)
                logits = self.head.logits(output, state.source_tokens)[:, 0]
                logits[:, PAD] = -torch.inf
                predicted = logits.argmax(dim=1)
            step_factors = None if factors is None else factors[:, t, None]
            word = self.target_embedding(predicted[:, None], factors=step_factors)[:, 0]
            return torch.where(forced[:, t], x[:, t], word)

        return choose
