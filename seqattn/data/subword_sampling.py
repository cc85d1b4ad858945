"""Subword regularization: texts cut into pieces anew each epoch, by chance that can be repeated."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import datasets

from seqattn.data.arrow_tables import Ints
from seqattn.data.tokenizer import Tokenizer

Pair = tuple[list[int], list[int]]


@dataclass(frozen=True)
class SubwordSampling:
    """Pairs of texts in sampled pieces (Kudo 2018, arXiv 1804.10959; Provilkov 2020, 1910.13267).

    A row's pieces are decided by seed, row and epoch.

    Args:
        texts: string columns "source" and "target".
        tokenizer: of both sides.
        alpha: as `LoaderOptions.subword_sampling`.
        seed: of the run.
    """

    texts: datasets.Dataset
    tokenizer: Tokenizer
    alpha: float
    seed: int

    def __call__(self, rows: Ints, epoch: int) -> list[Pair]:
        """Ids of the sources and targets of some rows, each with its end mark."""
        found = self.texts[rows.tolist()]
        chances = [Random(f"{self.seed} {epoch} {row}").random for row in rows.tolist()]
        sources = self.tokenizer.sample_source(found["source"], self.alpha, chances)
        targets = self.tokenizer.sample_target(found["target"], self.alpha, chances)
        return list(zip(sources, targets, strict=True))
