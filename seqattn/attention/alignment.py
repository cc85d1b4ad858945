"""Attention of recurrent decoders: a state asks, the annotations of the source answer."""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from seqattn.attention.masks import all_at_hand
from seqattn.attention.scores import AdditiveScore, Score, ScoreName, make_score
from seqattn.attention.watched import Watched
from seqattn.checking import Width
from seqattn.ops.precision import wide


class Annotations(NamedTuple):
    """What the encoder says of each source token, made ready for being asked, once a source."""

    keys: Tensor  # (B, S, A) what the score compares with
    values: Tensor  # (B, S, M) what contexts are made of
    real: Tensor  # (B, S) bool, True where a token stands
    places: Tensor  # (B, S) how many tokens stand before each
    padded: bool  # whether any of them may be padding

    @classmethod
    def of(cls, keys: Tensor, values: Tensor, real: Tensor) -> "Annotations":
        """Args: as the fields."""
        places = (real.long().cumsum(dim=1) - 1).clamp(min=0)
        return cls(keys, values, real, places, not all_at_hand(real))

    def keep(self, sentences: Tensor) -> "Annotations":
        """Those of some sentences. Args: sentences: (B',) rows."""
        keys, values, real, places = (part.index_select(0, sentences) for part in self[:4])
        return Annotations(keys, values, real, places, self.padded)


class Alignment(Watched, nn.Module, ABC):
    """Weights over a source's annotations, and the context that they make.

    One softmax over at most S annotations for each query: time T * S * (A + M), and T * S weights,
    beside the keys that are projected once a source. For cross-attention of recurrent decoders
    alone; it is asked step by step, or about a whole target at once.

    Args:
        context_dim: width of a context.

    Attributes:
        before: whether it was published with the decoder's state of before the step asking.
        normalised: whether a query's weights sum to 1, or to 0 where it sees nothing.
    """

    before: ClassVar[bool] = False
    has_weights: ClassVar[bool] = True
    normalised: ClassVar[bool] = True

    def __init__(self, context_dim: int) -> None:
        super().__init__()
        self.context_dim = context_dim

    @abstractmethod
    def project(self, memory: Tensor, real: Tensor) -> Annotations:
        """To be made once and reused. Args: memory: (B, S, M); real: (B, S) bool."""

    @abstractmethod
    def weights(self, query: Tensor, source: Annotations, steps: Tensor) -> Tensor:
        """The weights alone: (B, T, S), 0 on padding, as `forward`."""

    def forward(self, query: Tensor, source: Annotations, steps: Tensor) -> tuple[Tensor, Tensor]:
        """Context and weights of each query.

        Args:
            query: (B*K, T, query_dim), the K beams of a sentence next to each other.
            source: of B sentences.
            steps: (B*K, T) how many target tokens stand before each query's.

        Returns:
            The context (B*K, T, context_dim), zeros where there is nothing to look at, and the
            weights (B, K*T, S).
        """
        sentences, (rows, length) = source.values.shape[0], query.shape[:2]
        # (B*K, T, Q) -> (B, K*T, Q)
        asked = query.reshape(sentences, rows // sentences * length, -1)
        weights = self.weights(asked, source, steps.reshape(asked.shape[:2]))
        if self.edits:  # weights are shown as they are made, and not of a whole target together
            asking = asked, source, steps.reshape(asked.shape[:2])
            used = self.settled(weights[:, None], lambda: self.visible(*asking)[:, None])
            weights = weights if used is None else used[:, 0]
        context = weights.to(source.values.dtype) @ source.values
        return context.reshape(rows, length, self.context_dim), weights  # -> (B*K, T, M)

    def visible(self, query: Tensor, source: Annotations, steps: Tensor) -> Tensor:
        """Where a query may look: bool, broadcastable to (B, T, S). Args: as `weights`."""
        return source.real[:, None]

    def observe(self, weights: list[Tensor], beams: int) -> None:
        """Shows a whole target's `joined_steps` at once, where no edit has seen each of them."""
        if self.edits or not self.observers or not weights:
            return
        whole = joined_steps(weights, beams).flatten(1, 2)[:, None]
        for observer in self.observers:
            observer(whole)


def joined_steps(weights: list[Tensor], beams: int) -> Tensor:
    """The weights (B, K, T, S) of a whole target, from its calls' (B, K*T', S), in their order."""
    return torch.cat([part.unflatten(1, (beams, -1)) for part in weights], dim=2)


def masked_softmax(scores: Tensor, visible: Tensor | None) -> Tensor:
    """Softmax of scores (B, T, S) over visible keys, in float32; rows that see nothing are 0."""
    scores = wide(scores)
    if visible is None:
        return scores.softmax(dim=-1)
    weights = scores.masked_fill(~visible, torch.finfo(scores.dtype).min).softmax(dim=-1)
    return weights * visible


class _Scored(Alignment):
    """An alignment by a score, over all of the source."""

    def __init__(self, memory_dim: int, score: Score) -> None:
        super().__init__(memory_dim)
        self.score = score

    def project(self, memory: Tensor, real: Tensor) -> Annotations:
        return Annotations.of(self.score.project(memory), memory, real)

    def weights(self, query: Tensor, source: Annotations, steps: Tensor) -> Tensor:
        visible = source.real[:, None] if source.padded else None
        return masked_softmax(self.score(query, source.keys), visible)


class Bahdanau(_Scored):
    """Additive attention: e_i = v^T tanh(W_h h_i + W_s s), a softmax, the mean of the h_i.

    Bahdanau et al. 2015 (arXiv 1409.0473, eq. 5 and 6), where the state before the step asks. As
    `Alignment` costs, and T * S * A numbers are kept for the backward pass.

    Args:
        query_dim: width of the decoder's state.
        memory_dim: width M of an annotation.
        dim: width A inside the tanh; None for `query_dim`.
    """

    before = True

    def __init__(self, query_dim: int, memory_dim: int, dim: Width | None = None) -> None:
        super().__init__(memory_dim, AdditiveScore(query_dim, memory_dim, dim))


class Luong(_Scored):
    """Luong's global attention (arXiv 1508.04025, section 3.1): the state after the step asks.

    Args:
        query_dim: width of the decoder's state.
        memory_dim: width of an annotation.
        score: dot (h^T s), general (h^T W s), concat (v^T tanh(W [h; s])), or scaled
            (h^T s / sqrt(D)).

    Raises:
        UserError: for another score, or unequal widths where dot or scaled needs equal ones.
    """

    def __init__(self, query_dim: int, memory_dim: int, score: ScoreName) -> None:
        super().__init__(memory_dim, make_score(score, query_dim, memory_dim))


class NoAlignment(Alignment):
    """No attention: the source reaches the decoder through its first state alone.

    The encoder-decoder of Sutskever et al. 2014 (arXiv 1409.3215). Its contexts have no width.
    """

    has_weights = False

    def __init__(self, query_dim: int, memory_dim: int) -> None:
        super().__init__(0)

    def project(self, memory: Tensor, real: Tensor) -> Annotations:
        return Annotations.of(memory[..., :0], memory[..., :0], real)

    def weights(self, query: Tensor, source: Annotations, steps: Tensor) -> Tensor:
        return query.new_zeros(*query.shape[:2], source.real.shape[1])


class AlignmentFactory(Protocol):
    """Makes a decoder's own alignment."""

    def __call__(self, query_dim: int, memory_dim: int) -> Alignment: ...
