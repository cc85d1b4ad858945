"""The contract that generation, tasks and analysis know a model by."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor, nn

from seqattn.layers.embedding import Embedding
from seqattn.models.head import DecoderOutput, Head, SourceTokens
from seqattn.ops.cross_entropy import LossTerms, TokenLoss


@dataclass(frozen=True)
class Memory:
    """What the encoder makes of a batch of sources.

    Args:
        outputs: (B, S, D).
        real: (B, S) bool, True where a token stands.
        ids: (B, S) the source ids.
        last: (B, D') the last outputs of a recurrent encoder's layers; None of another.
    """

    outputs: Tensor
    real: Tensor
    ids: Tensor
    last: Tensor | None = None


PLAIN = LossTerms()
"""The likelihood alone."""


class Prediction(NamedTuple):
    """The distribution of what follows target tokens."""

    log_probabilities: Tensor
    """(B*K, T, V) in nats, in float32 at least."""
    weights: Tensor | None
    """(B*K, T, S) where the decoder looked, as `DecoderOutput`; None where it was not asked for."""


class State(Protocol):
    """What the decoder carries from one call to the next."""

    source_tokens: SourceTokens | None
    """As the head's `source_tokens` gives them."""
    can_crop: bool
    """Whether `crop` is possible."""

    def reorder(self, index: Tensor) -> None:
        """Beam k of sentence b goes on from its beam index[b, k]. Args: index: (B, K)."""

    def keep(self, sentences: Tensor) -> None:
        """Only these sentences go on. Args: sentences: (B',) rows, in the order they keep."""

    def crop(self, length: int) -> None:
        """Forgets all but the first `length` target tokens of each hypothesis."""

    @property
    def nbytes(self) -> int:
        """Bytes of the growing or rolling part, the source's keys and values left out."""


class Seq2SeqModel(nn.Module, ABC):
    """An encoder-decoder: `encode` once, `start` once, then as many calls as there are tokens."""

    source_embedding: Embedding
    target_embedding: Embedding
    head: Head
    has_weights: bool = False
    """Whether its decoder can say where in the source it looked."""
    feeds_itself: bool = False
    """Whether it can read its own tokens in training, so that teacher_forcing may be below 1."""
    max_source_length: int | None = None
    """Longest source in tokens, None where there is no limit."""
    max_target_length: int | None = None
    """Longest target in tokens, begin included, None where there is no limit."""

    @abstractmethod
    def encode(self, ids: Tensor) -> Memory:
        """Reads the sources (B, S), padded with 0 on either side."""

    @abstractmethod
    def start(self, memory: Memory, beams: int = 1, cached: bool = True) -> State:
        """The state before the first target token.

        Args:
            memory: of B sentences.
            beams: K hypotheses for each sentence; what the source gives is shared by them.
            cached: False for one call over the whole target, after which nothing is kept
                (training).
        """

    @abstractmethod
    def features(
        self, ids: Tensor, state: State, teacher_forcing: float = 1.0, need_weights: bool = False
    ) -> DecoderOutput:
        """Reads T more target tokens.

        Args:
            ids: (B*K, T), the beams of a sentence next to each other.
            state: what came before; moved on in place.
            teacher_forcing: share of steps that read the given token rather than the model's own.
            need_weights: also give weights and evidence, where `has_weights`.

        Raises:
            UserError: where the model cannot feed itself and teacher_forcing is below 1, or the
                target is longer than the model allows.
        """

    def decode(self, ids: Tensor, state: State, teacher_forcing: float = 1.0) -> Tensor:
        """As `features`, but gives the head's logits (B*K, T, V) of what follows each token."""
        output = self.features(ids, state, teacher_forcing, self.head.needs_weights)
        return self.head.logits(output, state.source_tokens)

    def log_probabilities(
        self, ids: Tensor, state: State, need_weights: bool = False
    ) -> Prediction:
        """As `features`, but gives the distribution of what follows each token."""
        output = self.features(ids, state, need_weights=need_weights or self.head.needs_weights)
        return Prediction(
            self.head.log_probabilities(output, state.source_tokens),
            output.weights if need_weights else None,
        )

    def loss(
        self,
        source: Tensor,
        target: Tensor,
        following: Tensor,
        terms: LossTerms = PLAIN,
        teacher_forcing: float = 1.0,
        tokens: int | None = None,
    ) -> TokenLoss:
        """The head's loss, summed over the real tokens of whole targets.

        Args:
            source: (B, S).
            target: (B, T) the tokens that are read, begin first.
            following: (B, T) the token that follows each, 0 where padded.
            terms: of the loss; for those of two passes the second half of the batch is another one
                over the first half's rows.
            teacher_forcing: as `features`.
            tokens: how many of `following` are real, where it is known: a GPU is then not asked.
        """
        state = self.start(self.encode(source), cached=False)
        output = self.features(target, state, teacher_forcing, self.head.needs_weights)
        return self.head.loss(output, following, state.source_tokens, terms, tokens)

    def forward(self, source: Tensor, target: Tensor, teacher_forcing: float = 1.0) -> Tensor:
        """Logits (B, T, V) of whole targets (B, T), begin first, given sources (B, S)."""
        state = self.start(self.encode(source), cached=False)
        return self.decode(target, state, teacher_forcing)
