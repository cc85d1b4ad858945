"""Constraints that differ between the sources of a batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqattn.generation.processors import Processor, process


@dataclass(frozen=True, eq=False)
class Constraints:
    """Constraints on the outputs of one source.

    Args:
        ids: their first tokens, without begin and end.
        ends: arrays of tokens, one of which a hypothesis may have in place of the last of `ids`;
            the last array is for the token after them.
        whole: False if one of `ends` is needed, for the rest of a word.
        processor: constraint that is called with the hypotheses of this source only.
    """

    ids: tuple[int, ...] = ()
    ends: Sequence[Any] = ()
    whole: bool = True
    processor: Processor | None = None

    def restrict(self, scores: Tensor, processed: Tensor, prefix: Tensor) -> None:
        """Allow hypotheses within the first tokens nothing else.

        Args:
            scores: (R, V) before other processors.
            processed: (R, V) after them, changed in place.
            prefix: (R, L) tokens so far.
        """
        position, first = prefix.shape[1], len(self.ids) + 1 - len(self.ends)
        if position >= len(self.ids) + bool(self.ends):
            return
        ends = self.ends[position - first] if position >= first else ()
        tokens = np.hstack([self.ids[position : position + 1], ends]).astype(np.int64)
        allowed = torch.as_tensor(tokens, device=prefix.device)
        within = (prefix == prefix.new_tensor(self.ids[:position])).all(dim=1, keepdim=True)
        forced = torch.full_like(scores, -torch.inf)
        forced[:, allowed] = scores[:, allowed]
        processed.copy_(torch.where(within, forced, processed))


@dataclass(frozen=True, eq=False)
class PerSource(Processor):
    """Constraints of each source of a batch, before other processors."""

    each: Sequence[Constraints]
    then: Sequence[Processor]
    reads_source = reads_numbers = True

    def __call__(
        self, scores: Tensor, prefix: Tensor, source: Any = None, numbers: Sequence[int] = ()
    ) -> None:
        begins = prefix.shape[1] <= max(len(constraints.ids) for constraints in self.each)
        unprocessed = scores.clone() if begins else scores
        process(self.then, scores, prefix, source)
        parts = (part.unflatten(0, (len(numbers), -1)) for part in (unprocessed, scores, prefix))
        for number, *rows in zip(numbers, *parts, strict=True):
            constraints = self.each[number]
            if constraints.processor is not None:
                constraints.processor(*rows[1:])
            if begins:
                constraints.restrict(*rows)
