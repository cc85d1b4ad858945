"""Subword regularization: texts cut into pieces anew each epoch, by chance that can be repeated."""

from __future__ import annotations

from dataclasses import dataclass

import datasets
import numpy as np

from seqattn.data.arrow_tables import Ints
from seqattn.data.tokenizer import Tokenizer

Pair = tuple[list[int], list[int]]


@dataclass(frozen=True)
class SubwordSampling:
    """Pairs of texts in sampled pieces (Kudo 2018, arXiv 1804.10959; Provilkov 2020, 1910.13267).

    A row's pieces are decided by seed, row and epoch, in one process and those that it forks.
    sentencepiece (0.2.2 and 0.2.3) mixes into its seeds what each process draws anew, so that a run
    that is resumed by another process sees other pieces of the same distribution.

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

    def __post_init__(self) -> None:
        # which draws what workers that are forked later share
        self.tokenizer.sample_source(["a"], self.alpha, [self.seed])

    def __call__(self, rows: Ints, epoch: int) -> list[Pair]:
        """Ids of the sources and targets of some rows, each with its end mark."""
        found = self.texts[rows.tolist()]
        drawn = [np.random.SeedSequence([self.seed, epoch, row]) for row in rows.tolist()]
        seeds = np.stack([one.generate_state(2) for one in drawn]).T.tolist()  # (2, rows)
        sources = self.tokenizer.sample_source(found["source"], self.alpha, seeds[0])
        targets = self.tokenizer.sample_target(found["target"], self.alpha, seeds[1])
        return list(zip(sources, targets, strict=True))
