"""Attention of recurrent decoders: the decoder state is the query, encoder outputs are the keys."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from seqattn.attention.masks import all_at_hand
from seqattn.attention.observation import Observable
from seqattn.attention.scores import AdditiveScore, Score, ScoreName, make_score
from seqattn.checking import Width
from seqattn.ops.precision import wide


class Annotations(NamedTuple):
    """The encoder's annotation of each source token, with keys projected once per source."""

    keys: Tensor  # (B, S, A) compared with queries by the score
    values: Tensor  # (B, S, M) averaged to contexts
    real: Tensor  # (B, S) bool, True on tokens
    positions: Tensor  # (B, S) number of tokens before each
    padded: bool  # False if there is known to be no padding

    @classmethod
    def of(cls, keys: Tensor, values: Tensor, real: Tensor) -> "Annotations":
        """Return annotations with positions computed from `real`. Args: as the fields."""
        positions = (real.long().cumsum(dim=1) - 1).clamp(min=0)
        return cls(keys, values, real, positions, not all_at_hand(real))

    def keep(self, sentences: Tensor) -> "Annotations":
        """Select the annotations of some sentences. Args: sentences: (B',) rows."""
        keys, values, real, positions = (part.index_select(0, sentences) for part in self[:4])
        return Annotations(keys, values, real, positions, self.padded)


Past = tuple[Tensor, ...]
"""Memory of a hypothesis' earlier steps, of an alignment: parts (B*K, ...), none by default."""


class AlignmentOutput(NamedTuple):
    """Result of an alignment."""

    context: Tensor  # (B*K, T, context_dim), zeros where nothing is visible
    weights: Tensor  # (B, K*T, S)
    past: Past  # after these queries


class Alignment(Observable, nn.Module, ABC):
    """Attention weights over a source's annotations, and the resulting context.

    One softmax over at most S annotations per query: time T * S * (A + M), and memory for T * S
    weights and for the keys, which are projected once per source. Used as the cross-attention of
    recurrent decoders, called step by step or for a complete target at once.

    Args:
        context_dim: width of a context.

    Attributes:
        attends_first: True if the query, as published, is the decoder's state before the step.
        normalized: True if a query's weights sum to 1, or to 0 where it sees nothing.
        remembers: True if weights depend on earlier steps; then called with one step at a time.
        exceptions: laws of tests that cannot hold, with the reasons.
    """

    attends_first: ClassVar[bool] = False
    has_weights: ClassVar[bool] = True
    normalized: ClassVar[bool] = True
    remembers: ClassVar[bool] = False
    exceptions: ClassVar[Mapping[str, str]] = {}

    def __init__(self, context_dim: int) -> None:
        super().__init__()
        self.context_dim = context_dim

    @abstractmethod
    def project(self, memory: Tensor, real: Tensor) -> Annotations:
        """Project the memory, once per source. Args: memory: (B, S, M); real: (B, S) bool."""

    @abstractmethod
    def weights(self, query: Tensor, source: Annotations, steps: Tensor) -> Tensor:
        """Return only the weights: (B, T, S), 0 on padding. Args: as in `forward`."""

    def model_type(self, default: type[Any]) -> type[Any]:
        """Return the class of model that it needs, a subclass of `default`, the plain one."""
        return default

    def first_past(self, source: Annotations, beams: int) -> Past:
        """Return what is remembered before the first step. Args: beams: K hypotheses a sentence."""
        return ()

    def weigh(
        self, query: Tensor, source: Annotations, steps: Tensor, past: Past
    ) -> tuple[Tensor, Past]:
        """Return weights (B, K*T, S), and what is remembered after; T is 1 if it `remembers`."""
        return self.weights(query, source, steps), past

    def forward(
        self, query: Tensor, source: Annotations, steps: Tensor, past: Past = ()
    ) -> AlignmentOutput:
        """Compute the context and weights of each query.

        Args:
            query: (B*K, T, query_dim), the K beams of a sentence adjacent.
            source: annotations of B sentences.
            steps: (B*K, T) number of target tokens before each query's.
            past: of the same hypotheses, from `first_past` or the previous step.
        """
        sentences, (rows, length) = source.values.shape[0], query.shape[:2]
        # (B*K, T, Q) -> (B, K*T, Q)
        queries = query.reshape(sentences, rows // sentences * length, -1)
        arguments = queries, source, steps.reshape(queries.shape[:2])
        weights, past = self.weigh(*arguments, past)
        if self.edits:  # weights are then shown at each step, not for the complete target
            used = self.edit_and_show(weights[:, None], lambda: self.visible(*arguments)[:, None])
            weights = weights if used is None else used[:, 0]
        context = weights.to(source.values.dtype) @ source.values
        context = context.reshape(rows, length, self.context_dim)  # -> (B*K, T, M)
        return AlignmentOutput(context, weights, past)

    def visible(self, query: Tensor, source: Annotations, steps: Tensor) -> Tensor:
        """Return which annotations a query may attend to: bool, broadcastable to (B, T, S)."""
        return source.real[:, None]

    def observe(self, weights: list[Tensor], beams: int) -> None:
        """Show the `joined_steps` of a complete target to observers, unless edits saw each step."""
        if self.edits or not self.observers or not weights:
            return
        all_steps = joined_steps(weights, beams).flatten(1, 2)[:, None]
        for observer in self.observers:
            observer(all_steps)


def joined_steps(weights: list[Tensor], beams: int) -> Tensor:
    """Join the weights (B, K*T', S) of consecutive calls into the target's (B, K, T, S)."""
    return torch.cat([part.unflatten(1, (beams, -1)) for part in weights], dim=2)


def masked_softmax(scores: Tensor, visible: Tensor | None) -> Tensor:
    """Return the float32 softmax of scores (B, T, S) over visible keys; 0 in rows without any."""
    scores = wide(scores)
    if visible is None:
        return scores.softmax(dim=-1)
    weights = scores.masked_fill(~visible, torch.finfo(scores.dtype).min).softmax(dim=-1)
    return weights * visible


class _Scored(Alignment):
    """An alignment by a score function, over the complete source."""

    def __init__(self, memory_dim: int, score: Score) -> None:
        super().__init__(memory_dim)
        self.score = score

    def project(self, memory: Tensor, real: Tensor) -> Annotations:
        return Annotations.of(self.score.project(memory), memory, real)

    def weights(self, query: Tensor, source: Annotations, steps: Tensor) -> Tensor:
        visible = source.real[:, None] if source.padded else None
        return masked_softmax(self.score(query, source.keys), visible)


class Bahdanau(_Scored):
    """Additive attention: e_i = v^T tanh(W_h h_i + W_s s), a softmax, a weighted mean of h_i.

    Bahdanau et al. 2015 (arXiv 1409.0473, eq. 5 and 6), where the query is the state before the
    step. Costs as much as `Alignment`, and stores T * S * A numbers for the backward pass.

    Args:
        query_dim: width of the decoder's state.
        memory_dim: width M of an annotation.
        dim: width A inside the tanh; None for `query_dim`.
    """

    attends_first = True

    def __init__(self, query_dim: int, memory_dim: int, dim: Width | None = None) -> None:
        super().__init__(memory_dim, AdditiveScore(query_dim, memory_dim, dim))


class Luong(_Scored):
    """Luong's global attention (arXiv 1508.04025, section 3.1), queried after the step.

    Args:
        query_dim: width of the decoder's state.
        memory_dim: width of an annotation.
        score: dot (h^T s), general (h^T W s), concat (v^T tanh(W [h; s])), or scaled
            (h^T s / sqrt(D)).

    Raises:
        UserError: unknown score, or unequal widths with dot or scaled.
    """

    def __init__(self, query_dim: int, memory_dim: int, score: ScoreName) -> None:
        super().__init__(memory_dim, make_score(score, query_dim, memory_dim))


class NoAlignment(Alignment):
    """No attention: the source reaches the decoder only through its initial state.

    The encoder-decoder of Sutskever et al. 2014 (arXiv 1409.3215). Its contexts have width 0.
    """

    has_weights = False

    def __init__(self, query_dim: int, memory_dim: int) -> None:
        super().__init__(0)

    def project(self, memory: Tensor, real: Tensor) -> Annotations:
        return Annotations.of(memory[..., :0], memory[..., :0], real)

    def weights(self, query: Tensor, source: Annotations, steps: Tensor) -> Tensor:
        return query.new_zeros(*query.shape[:2], source.real.shape[1])


class AlignmentFactory(Protocol):
    """Factory of a decoder's alignment."""

    def __call__(self, query_dim: int, memory_dim: int) -> Alignment: ...
