"""What a recurrent decoder leaves behind as it reads a target."""

import torch
from torch import Tensor

from seqattn.attention.alignment import joined_steps
from seqattn.models.base import Attended


class Trail:
    """What a decoder read, came to, was shown and made of it: a piece a step, or one of all steps.

    `words` (B*K, I), `tops` (B*K, hidden), `contexts` (B*K, M), `features` (B*K, D), or each with
    an axis T after the first; `weights` (B, K*T', S).
    """

    def __init__(self) -> None:
        self.words: list[Tensor] = []
        self.tops: list[Tensor] = []
        self.contexts: list[Tensor] = []
        self.features: list[Tensor] = []
        self.weights: list[Tensor] = []

    def attended(self, beams: int) -> Attended:
        """All of it. Args: beams: K."""
        evidence = [whole(part) for part in (self.contexts, self.tops, self.words)]
        weights = joined_steps(self.weights, beams).flatten(0, 1)
        return Attended(whole(self.features), weights, torch.cat(evidence, dim=-1))

    def last(self, beams: int) -> Attended:
        """The last step alone, where each step has a piece. Args: beams: K."""
        end = Trail()
        for name, pieces in vars(self).items():
            setattr(end, name, pieces[-1:])
        return end.attended(beams)


def whole(pieces: list[Tensor]) -> Tensor:
    """(B*K, T, ...) of a piece a step, or of one piece of all steps."""
    return pieces[0] if pieces[0].dim() == 3 else torch.stack(pieces, dim=1)
