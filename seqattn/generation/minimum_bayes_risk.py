"""Minimum Bayes risk: of samples the one that is most like all of them."""

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
    """Draws samples and says what is most like them (Eikema and Aziz 2020, arXiv 2005.10283).

    The likeliest output of a model is often short or odd; the one that shares most with what the
    model says at all is safer. A hypothesis scores its mean likeness to all samples: that of two is
    the F1 of their n-grams of tokens, the mean over n. It is 1 where both are the same.

    Args:
        limit, processors, temperature, top_k, top_p, seed: as `Sampling`.
        batch_size: of sentences, each of them `samples` rows.
        n_best: hypotheses given for each source; they are distinct, so there may be fewer.
        samples: drawn of each source.
        order: the longest n.
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
        return [self._ranked(found)[: self.n_best] for found in drawn]

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
    """Those of a text, and of one that is shorter the whole."""
    return (tuple(ids[start : start + n]) for start in range(max(1, len(ids) - n + 1)))


def _likeness(counted: Sequence[Counter[tuple[int, ...]]]) -> NDArray[np.float64]:
    """F1 (K, K) of what each has in common with each."""
    places = {gram: place for place, gram in enumerate(set().union(*counted))}
    counts = np.zeros((len(counted), len(places)))
    for row, counter in zip(counts, counted, strict=True):
        row[[places[gram] for gram in counter]] = list(counter.values())
    sizes = counts.sum(axis=1)
    common = np.stack([np.minimum(row, counts).sum(axis=1) for row in counts])
    return 2 * common / (sizes[:, None] + sizes)
