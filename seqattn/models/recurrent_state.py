"""What a recurrent decoder carries from one call to the next."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from seqattn.attention.alignment import Annotations
from seqattn.attention.masks import real_first
from seqattn.errors import UserError
from seqattn.layers.recurrent import Hidden
from seqattn.models.base import PAD, State
from seqattn.models.copying import SourceWords


class Reading(NamedTuple):
    """Target tokens as the decoder reads them: each row's real ones first, in their order."""

    ids: Tensor
    """(B*K, T)."""
    steps: Tensor
    """(B*K, T) how many tokens stand before each."""
    going: Tensor | None
    """(B*K, T) bool, False where a state must stay as it is; None where none must."""
    back: Tensor | None
    """(B*K, T) where each given token went; None where it stayed."""

    def as_given(self, x: Tensor) -> Tensor:
        """(B*K, T, ...) of the tokens as read, in the order in which they were given."""
        return x if self.back is None else x.gather(1, self.back[..., None].expand_as(x))


@dataclass
class RecurrentState(State):
    """The decoder's states, and the source's annotations, which the beams share.

    Args:
        source: of B sentences.
        layers: a state (B*K, D) for each layer.
        fed: (B*K, D) the features of the step before, where they are an input; else None.
        steps: (B*K,) how many target tokens were read.
        beams: K.
        cached: False for one call alone.
        begun: whether a call was made.
        words: of B sentences, what can be copied, where the model copies.
    """

    source: Annotations
    layers: list[Hidden]
    fed: Tensor | None
    steps: Tensor
    beams: int
    cached: bool = True
    begun: bool = False
    words: SourceWords | None = None

    def reorder(self, index: Tensor) -> None:
        first = torch.arange(index.shape[0], device=index.device) * self.beams
        self._take((index + first[:, None]).flatten())

    def keep(self, sentences: Tensor) -> None:
        beams = torch.arange(self.beams, device=sentences.device)
        self._take((sentences[:, None] * self.beams + beams).flatten())
        self.source = self.source.keep(sentences)
        self.words = None if self.words is None else self.words.keep(sentences)

    def _take(self, rows: Tensor) -> None:
        self.layers = [tuple(part.index_select(0, rows) for part in h) for h in self.layers]
        self.fed = None if self.fed is None else self.fed.index_select(0, rows)
        self.steps = self.steps.index_select(0, rows)

    @property
    def nbytes(self) -> int:
        parts = [part for hidden in self.layers for part in hidden]
        parts += [] if self.fed is None else [self.fed]
        return sum(part.numel() * part.element_size() for part in parts)

    def advance(self, ids: Tensor) -> Reading:
        """How ids (B*K, T) are read, which from now on are part of the past."""
        if self.begun and not self.cached:
            raise UserError("a state started with cached=False serves one decode; start another")
        single = self.begun and ids.shape[1] == 1  # a search's own token, never padding
        self.begun = True
        back = going = None
        real = torch.ones_like(ids, dtype=torch.bool) if single else ids != PAD
        if not single and not bool(real.all()):
            order = real_first(real)
            if order is not None:
                ids, back = ids.gather(1, order), order.argsort(dim=1)
            # the states after padding on the right matter to a later call alone
            going = real.sum(dim=1, keepdim=True) > torch.arange(ids.shape[1], device=ids.device)
        steps = self.steps[:, None] + torch.arange(ids.shape[1], device=ids.device)
        self.steps = self.steps + real.sum(dim=1)
        return Reading(ids, steps, going if self.cached else None, back)
