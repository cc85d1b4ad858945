"""The model interface used by generation, tasks and analysis."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from seqattn.layers.embedding import Embedding
from seqattn.models.head import DecoderOutput, Head, SourceTokens
from seqattn.ops.cross_entropy import LossTerms, TokenLoss


@dataclass(frozen=True)
class Memory:
    """Output of the encoder for a batch of sources.

    Args:
        outputs: (B, S, D).
        real: (B, S) bool, True on tokens.
        ids: (B, S) the source ids.
        last: (B, D') the final outputs of a recurrent encoder's layers; None for other encoders.
    """

    outputs: Tensor
    real: Tensor
    ids: Tensor
    last: Tensor | None = None


PLAIN = LossTerms()
"""Loss terms for the likelihood only."""


class Prediction(NamedTuple):
    """Distribution of the next token after each target token."""

    log_probabilities: Tensor
    """(B*K, T, V) in nats, in at least float32."""
    weights: Tensor | None
    """(B*K, T, S) cross-attention weights, as in `DecoderOutput`; None if not requested."""


class State(Protocol):
    """State of the decoder between calls."""

    source_tokens: SourceTokens | None
    """Output of the head's `source_tokens`."""
    can_crop: bool
    """True if `crop` is supported."""

    def reorder(self, index: Tensor) -> None:
        """Continue beam k of sentence b from its beam index[b, k]. Args: index: (B, K)."""

    def keep(self, sentences: Tensor) -> None:
        """Drop all but these sentences. Args: sentences: (B',) rows, in their new order."""

    def crop(self, length: int) -> None:
        """Drop all but the first `length` target tokens of each hypothesis."""

    @property
    def nbytes(self) -> int:
        """Bytes of the growing or rolling part, without the source's keys and values."""


class Seq2SeqModel(nn.Module, ABC):
    """An encoder-decoder: call `encode` and `start` once, then `features` for each token."""

    source_embedding: Embedding
    target_embedding: Embedding
    head: Head
    output_layers: ClassVar[tuple[str, ...]] = ("head",)
    """Attributes with output layers, which Muon leaves to AdamW."""
    has_weights: bool = False
    """True if the decoder can return cross-attention weights."""
    feeds_itself: bool = False
    """True if it can read its own predictions in training (teacher_forcing below 1)."""
    replayed: Callable[[Tensor, Tensor], Tensor] | None = None
    """Computes `target_features` in training, see `training.captured_passes`; None for none."""
    max_source_length: int | None = None
    """Longest source in tokens, None for no limit."""
    max_target_length: int | None = None
    """Longest target in tokens, begin included, None for no limit."""

    @abstractmethod
    def encode(self, ids: Tensor) -> Memory:
        """Encode sources (B, S), padded with 0 on either side."""

    @abstractmethod
    def start(self, memory: Memory, beams: int = 1, cached: bool = True) -> State:
        """Return the state before the first target token.

        Args:
            memory: memory of B sentences.
            beams: K hypotheses per sentence, which share the source's tensors.
            cached: False for a single call over the complete target, without a cache (training).
        """

    @abstractmethod
    def features(
        self, ids: Tensor, state: State, teacher_forcing: float = 1.0, need_weights: bool = False
    ) -> DecoderOutput:
        """Decode T more target tokens.

        Args:
            ids: (B*K, T), the beams of a sentence adjacent.
            state: the state so far; advanced in place.
            teacher_forcing: share of steps that read the target token rather than the prediction.
            need_weights: also return weights and evidence, if `has_weights`.

        Raises:
            UserError: teacher_forcing is below 1 but `feeds_itself` is false, or the target is too
                long for the model.
        """

    def decode(self, ids: Tensor, state: State, teacher_forcing: float = 1.0) -> Tensor:
        """Return the head's logits (B*K, T, V) of each next token. Args: as in `features`."""
        output = self.features(ids, state, teacher_forcing, self.head.needs_weights)
        return self.head.logits(output, state.source_tokens)

    def log_probabilities(
        self, ids: Tensor, state: State, need_weights: bool = False
    ) -> Prediction:
        """Return the distribution of each next token. Args: as in `features`."""
        output = self.features(ids, state, need_weights=need_weights or self.head.needs_weights)
        return Prediction(
            self.head.log_probabilities(output, state.source_tokens),
            output.weights if need_weights else None,
        )

    def target_features(self, source: Tensor, target: Tensor) -> Tensor:
        """Return features (B, T, D) of complete targets (B, T), begin first, for sources (B, S)."""
        return self.features(target, self.start(self.encode(source), cached=False)).features

    def loss(
        self,
        source: Tensor,
        target: Tensor,
        following: Tensor,
        terms: LossTerms = PLAIN,
        teacher_forcing: float = 1.0,
        tokens: int | None = None,
    ) -> TokenLoss:
        """Compute the head's loss, summed over the real tokens of complete targets.

        Args:
            source: (B, S).
            target: (B, T) the input tokens, begin first.
            following: (B, T) the next token after each, 0 where padded.
            terms: terms of the loss; with two passes, the second half of the batch repeats the rows
                of the first.
            teacher_forcing: as in `features`.
            tokens: number of real tokens in `following`, if known, which avoids a GPU sync.
        """
        if self.replayed is not None and self.training and torch.is_grad_enabled():
            output = DecoderOutput(self.replayed(source, target))
            return self.head.loss(output, following, None, terms, tokens)
        state = self.start(self.encode(source), cached=False)
        output = self.features(target, state, teacher_forcing, self.head.needs_weights)
        return self.head.loss(output, following, state.source_tokens, terms, tokens)

    def forward(self, source: Tensor, target: Tensor, teacher_forcing: float = 1.0) -> Tensor:
        """Return logits (B, T, V) of complete targets (B, T), begin first, for sources (B, S)."""
        state = self.start(self.encode(source), cached=False)
        return self.decode(target, state, teacher_forcing)
