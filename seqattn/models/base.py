"""The contract that generation, tasks and analysis know a model by."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor, nn

from seqattn.models.copying import Copying, Mixture, SourceWords, mixed

PAD, BOS, EOS = 0, 2, 3
"""Ids that every vocabulary keeps for padding, begin and end of a sequence."""


@dataclass(frozen=True)
class Memory:
    """What the encoder knows of a batch of sources.

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


class Attended(NamedTuple):
    """What the decoder makes of target tokens, and where in the source it looked for that."""

    features: Tensor
    """(B*K, T, D)."""
    weights: Tensor
    """(B*K, T, S) of the last cross-attention, the mean of its heads; 0 on padding."""
    evidence: Tensor
    """(B*K, T, E) the context that came of it, the decoder's state and the word that was read."""


class Decoded(NamedTuple):
    """What follows target tokens, and where in the source the decoder looked for that."""

    scores: Tensor
    """(B*K, T, V) as `Seq2SeqModel.decode` gives them."""
    weights: Tensor
    """As `Attended`."""


class State(Protocol):
    """What the decoder carries from one call to the next."""

    words: SourceWords | None
    """What can be copied; None where the model does not copy."""

    def reorder(self, index: Tensor) -> None:
        """Beam k of sentence b goes on from its beam index[b, k]. Args: index: (B, K)."""

    def keep(self, sentences: Tensor) -> None:
        """Only these sentences go on. Args: sentences: (B',) rows, in the order they keep."""

    @property
    def nbytes(self) -> int:
        """Bytes of the growing or rolling part, the source's keys and values left out."""


class Seq2SeqModel(nn.Module, ABC):
    """An encoder-decoder: `encode` once, `start` once, `decode` as often as there are tokens."""

    output: nn.Linear
    """From the decoder's features to the target vocabulary."""
    gives_weights: bool = False
    """Whether it can say where in the source it looked, as `features_with_weights` does."""
    feeds_itself: bool = False
    """Whether it can read its own tokens in training, so that teacher_forcing may be below 1."""
    max_source_length: int | None = None
    """Longest source in tokens, None where there is no limit."""
    max_target_length: int | None = None
    """Longest target in tokens, begin included, None where there is no limit."""

    def __init__(self) -> None:
        super().__init__()
        self.copying: Copying | None = None
        """How it copies source tokens; None where it does not."""

    @abstractmethod
    def encode(self, ids: Tensor) -> Memory:
        """Reads the sources.

        Args:
            ids: (B, S), padded with 0 on either side.
        """

    @abstractmethod
    def start(self, memory: Memory, beams: int = 1, cached: bool = True) -> State:
        """The state before the first target token.

        Args:
            memory: of B sentences.
            beams: K hypotheses for each sentence; what the source gives is shared by them.
            cached: False for one `decode` over the whole target, after which nothing is kept
                (training).
        """

    @abstractmethod
    def features(self, ids: Tensor, state: State, teacher_forcing: float = 1.0) -> Tensor:
        """As `decode`, short of the output layer: (B*K, T, D), and `output` gives the logits."""

    def features_with_weights(
        self, ids: Tensor, state: State, teacher_forcing: float = 1.0
    ) -> Attended:
        """As `features`, and where the decoder looked; for models that give weights."""
        raise NotImplementedError(f"{type(self).__name__} gives no weights")

    def decode(self, ids: Tensor, state: State, teacher_forcing: float = 1.0) -> Tensor:
        """Reads T more target tokens and says what follows each.

        Args:
            ids: (B*K, T), the beams of a sentence next to each other.
            state: what came before; moved on in place.
            teacher_forcing: share of steps that read the given token rather than the model's own.

        Returns:
            Logits (B*K, T, V), or log-probabilities where the model copies.

        Raises:
            UserError: where the model cannot feed itself and teacher_forcing is below 1, or the
                target is longer than the model allows.
        """
        if self.copying is not None:
            return self.decode_with_weights(ids, state, teacher_forcing).scores
        logits: Tensor = self.output(self.features(ids, state, teacher_forcing))
        return logits

    def decode_with_weights(
        self, ids: Tensor, state: State, teacher_forcing: float = 1.0
    ) -> Decoded:
        """As `decode`, and where the decoder looked; for models that give weights."""
        seen = self.features_with_weights(ids, state, teacher_forcing)
        return Decoded(self.scores(seen, state), seen.weights)

    def scores(self, seen: Attended, state: State) -> Tensor:
        """What `decode` gives, (B*K, T, V), of what was attended to."""
        logits: Tensor = self.output(seen.features)
        if self.copying is None:
            return logits
        return mixed(logits, self.mixture(seen, state))

    def mixture(self, seen: Attended, state: State) -> Mixture:
        """How a model that copies shares each target token between generating and copying."""
        assert self.copying is not None
        assert state.words is not None
        return self.copying.mixture(seen.weights, seen.evidence, state.words)

    def forward(self, source: Tensor, target: Tensor, teacher_forcing: float = 1.0) -> Tensor:
        """Logits (B, T, V) of whole targets (B, T), begin first, given sources (B, S)."""
        state = self.start(self.encode(source), cached=False)
        return self.decode(target, state, teacher_forcing)
