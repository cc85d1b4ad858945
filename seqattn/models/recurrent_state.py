"""State of a recurrent decoder between calls."""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from seqattn.attention.alignment import Annotations, Past, joined_steps
from seqattn.attention.cache import RowCache
from seqattn.attention.masks import all_at_hand, real_first
from seqattn.layers.rnn_layer import Hidden
from seqattn.models.base import State
from seqattn.models.head import DecoderOutput, SourceTokens
from seqattn.tokens import PAD


class TargetRows(NamedTuple):
    """Target tokens in the decoder's order: each row's real tokens first."""

    ids: Tensor
    """(B*K, T)."""
    steps: Tensor
    """(B*K, T) number of tokens before each."""
    active: Tensor | None
    """(B*K, T) bool, False where a state must not change; None if all may."""
    given_order: Tensor | None
    """(B*K, T) new position of each input token; None if unchanged."""

    def in_given_order(self, output: DecoderOutput) -> DecoderOutput:
        """Return the decoder's output in the order of the input tokens."""
        if self.given_order is None:
            return output
        order = self.given_order[..., None]
        return DecoderOutput._make(
            None if part is None else part.gather(1, order.expand_as(part)) for part in output
        )

    def advance(self, t: int, new: Hidden, old: Hidden) -> Hidden:
        """Return the new state, or the old one in rows without a token at step t."""
        if self.active is None:
            return new
        active = self.active[:, t, None]
        return tuple(torch.where(active, one, other) for one, other in zip(new, old, strict=True))


@dataclass
class RecurrentState(RowCache, State):
    """The decoder's states, and the source annotations shared by the beams."""

    source: Annotations
    layers: list[Hidden]
    """A state (B*K, D) of each layer."""
    fed: Tensor | None
    """(B*K, D) the features of the previous step, if they are an input."""
    steps: Tensor
    """(B*K,) number of target tokens read."""
    beams: int
    cached: bool = True
    has_tokens: bool = False
    source_tokens: SourceTokens | None = None
    past: Past = ()
    """Memory of the alignment, of earlier steps."""
    can_crop: bool = False

    def select(self, rows: Tensor) -> None:
        self.layers = [tuple(part.index_select(0, rows) for part in h) for h in self.layers]
        self.fed = None if self.fed is None else self.fed.index_select(0, rows)
        self.steps = self.steps.index_select(0, rows)
        self.past = tuple(part.index_select(0, rows) for part in self.past)

    def keep(self, sentences: Tensor) -> None:
        super().keep(sentences)
        self.source = self.source.keep(sentences)
        if self.source_tokens is not None:
            self.source_tokens = self.source_tokens.keep(sentences)

    def crop(self, length: int) -> None:
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        parts = [part for hidden in (*self.layers, self.past) for part in hidden]
        parts += [] if self.fed is None else [self.fed]
        return sum(part.numel() * part.element_size() for part in parts)

    def advance(self, ids: Tensor) -> TargetRows:
        """Add ids (B*K, T) to the past, and return them in the decoder's order."""
        assert self.cached or not self.has_tokens, "cached=False supports only one decode"
        single = self.has_tokens and ids.shape[1] == 1  # a token of a search, never padding
        self.has_tokens = True
        order = active = None
        real = torch.ones_like(ids, dtype=torch.bool) if single else ids != PAD
        if not single and not all_at_hand(real):
            sorted_first = real_first(real)
            if sorted_first is not None:
                ids, order = ids.gather(1, sorted_first), sorted_first.argsort(dim=1)
            # states after padding on the right matter only to a later call
            active = real.sum(dim=1, keepdim=True) > torch.arange(ids.shape[1], device=ids.device)
        steps = self.steps[:, None] + torch.arange(ids.shape[1], device=ids.device)
        self.steps = self.steps + real.sum(dim=1)
        return TargetRows(ids, steps, active if self.cached else None, order)


@dataclass
class DecodedSteps:
    """Decoded steps: one piece (B*K, ...) for each step, or one (B*K, T, ...) for all; weights are
    (B, K*T', S)."""

    inputs: list[Tensor] = field(default_factory=list)
    tops: list[Tensor] = field(default_factory=list)
    """Outputs of the top layer."""
    contexts: list[Tensor] = field(default_factory=list)
    features: list[Tensor] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)

    def last(self) -> "DecodedSteps":
        """Return only the last step, if each step has a piece."""
        return DecodedSteps(*(pieces[-1:] for pieces in vars(self).values()))

    def output(self, beams: int, need_weights: bool) -> DecoderOutput:
        """Return all steps. Args: beams: K; need_weights: also return weights and evidence."""
        if not need_weights:
            return DecoderOutput(_all_steps(self.features))
        evidence = [_all_steps(part) for part in (self.contexts, self.tops, self.inputs)]
        weights = joined_steps(self.weights, beams).flatten(0, 1)
        return DecoderOutput(_all_steps(self.features), weights, torch.cat(evidence, dim=-1))


def _all_steps(pieces: list[Tensor]) -> Tensor:
    return pieces[0] if pieces[0].dim() == 3 else torch.stack(pieces, dim=1)
