"""Slots of the caches of decoding that each beam of a sentence descends from.

A slot is a cell of a cache for the keys and values of a token, not the slot of a layer.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class BeamSlots(NamedTuple):
    """Contents of the N slots of a cache shared by the beams of a sentence.

    Args:
        ancestry: (B, K, N) bool, True on the slots that a beam descends from.
        tokens: (N,) or (B, N) index of the token, from 0, in each slot.
    """

    ancestry: Tensor
    tokens: Tensor


class BeamTable:
    """Slots of a sentence's beams, in one table for the caches of all layers.

    Each of these caches appends the same tokens in the same steps, the first of them to the table.

    Args:
        beams: K, hypotheses per sentence.
    """

    def __init__(self, beams: int) -> None:
        self.beams = beams
        self.length = 0
        self.slots: BeamSlots | None = None
        self.retained: Tensor | None = None
        """(B, M) the slots that the last `forget` retained."""
        self.forgotten = 0
        """Number of times that slots were dropped."""

    def append(self, sentences: int, steps: int, device: torch.device) -> None:
        """Add the slots of T new tokens of each beam."""
        eye = torch.eye(self.beams, dtype=torch.bool, device=device).repeat(1, steps)
        eye = eye.expand(sentences, -1, -1)
        tokens = torch.arange(self.length, self.length + steps, device=device)
        tokens = tokens.repeat_interleave(self.beams)
        self.length += steps
        if self.slots is None:
            self.slots = BeamSlots(eye, tokens)
            return
        ancestry, old = self.slots
        tokens = tokens.expand(*old.shape[:-1], -1)
        self.slots = BeamSlots(torch.cat((ancestry, eye), dim=2), torch.cat((old, tokens), -1))

    def forget(self) -> None:
        """Reduce the slots to the most that any sentence needs, if that drops a quarter or more."""
        assert self.slots is not None
        ancestry, tokens = self.slots
        needed = ancestry.any(dim=1)  # (B, N)
        size = int(needed.sum(dim=1).max())
        if 4 * size > 3 * needed.shape[1]:
            return
        # (B, M), needed ones first
        self.retained = (~needed).byte().argsort(dim=1, stable=True)[:, :size]
        self.forgotten += 1
        tokens = tokens.expand_as(needed).gather(1, self.retained)
        self.slots = BeamSlots(ancestry.take_along_dim(self.retained[:, None], dim=2), tokens)

    def reorder(self, index: Tensor) -> None:
        """Continue beam k of sentence b from beam index[b, k]. Args: index: (B, K)."""
        if self.slots is not None:
            ancestry, tokens = self.slots
            self.slots = BeamSlots(ancestry.take_along_dim(index[..., None], dim=1), tokens)

    def keep(self, sentences: Tensor) -> None:
        """Drop all but these sentences. Args: sentences: (B',) batch rows."""
        if self.slots is not None:
            ancestry, tokens = self.slots
            tokens = tokens if tokens.dim() == 1 else tokens.index_select(0, sentences)
            self.slots = BeamSlots(ancestry.index_select(0, sentences), tokens)

    def crop(self, length: int) -> None:
        """Drop all but the first `length` tokens."""
        self.length = min(length, self.length)
        if self.slots is None:
            return
        ancestry, tokens = self.slots
        if tokens.dim() == 1:
            used = length * self.beams
            self.slots = BeamSlots(ancestry[:, :, :used], tokens[:used])
        else:  # slots are in no particular order
            ancestry = ancestry & (tokens < length)[:, None]
            self.slots = BeamSlots(ancestry, tokens.clamp(max=max(length - 1, 0)))
