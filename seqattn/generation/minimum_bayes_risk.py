"""Minimum Bayes risk decoding: the sample most similar to all others."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from annotated_types import Ge, Le
from numpy.typing import NDArray

from seqattn.checking import CountOrNone
from seqattn.generation.base import Hypothesis, SearchModel
from seqattn.generation.sampling import Sampling
from seqattn.models.base import Memory
from seqattn.roles import Role


@dataclass(frozen=True)
class MinimumBayesRisk(Sampling):
    """Sampling that ranks samples by similarity to all (Eikema and Aziz 2020, arXiv 2005.10283).

    A model's most probable output is often short or odd; the output that shares most with others is
    safer. A hypothesis scores its mean similarity to all samples, where the similarity of two is
    the F1 of their token n-grams, averaged over n; it is 1 if they are equal.

    Args:
        limit, processors, temperature, top_k, top_p, seed: as in `Sampling`.
        batch_size: sentences in a batch, with `samples` rows each.
        n_best: maximum distinct hypotheses returned for each source.
        samples: number of samples for each source.
        order: the largest n.
    """

    batch_size: Annotated[CountOrNone, Role.NOTE] = field(default=16, kw_only=True)
    samples: Annotated[int, Ge(1), Le(1_000)] = 48
    order: Annotated[int, Ge(1), Le(8)] = 2

    @property
    def beams(self) -> int:
        return self.samples

    def search(
        self, model: SearchModel, memory: Memory, numbers: Sequence[int]
    ) -> list[list[Hypothesis]]:
        drawn = self.draw(model, memory, numbers, self.samples)
        return [self._ranked(samples)[: self.n_best] for samples in drawn]

    def _ranked(self, drawn: Sequence[Hypothesis]) -> list[Hypothesis]:
        times = Counter(hypothesis.ids for hypothesis in drawn)
        weights = np.array(list(times.values())) / len(drawn)
        scores = np.zeros(len(times))
        for n in range(1, self.order + 1):
            scores += _likeness([Counter(_ngrams(ids, n)) for ids in times]) @ weights / self.order
        known = {hypothesis.ids: hypothesis for hypothesis in drawn}
        ranked = sorted(zip(times, scores.tolist(), strict=True), key=lambda one: -one[1])
        return [known[ids]._replace(score=score) for ids, score in ranked]


def _ngrams(ids: Sequence[int], n: int) -> Iterator[tuple[int, ...]]:
    """Yield the n-grams of a text, or the complete text if it is shorter."""
    return (tuple(ids[start : start + n]) for start in range(max(1, len(ids) - n + 1)))


def _likeness(counted: Sequence[Counter[tuple[int, ...]]]) -> NDArray[np.float64]:
    """Return the F1 (K, K) between the n-gram counts of each pair of samples."""
    columns = {gram: column for column, gram in enumerate(set().union(*counted))}
    counts = np.zeros((len(counted), len(columns)))
    for row, counter in zip(counts, counted, strict=True):
        row[[columns[gram] for gram in counter]] = list(counter.values())
    sizes = counts.sum(axis=1)
    common = np.stack([np.minimum(row, counts).sum(axis=1) for row in counts])
    return 2 * common / (sizes[:, None] + sizes)
