"""Retrieval of similar texts by tf-idf."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from seqattn.metrics.scripts import script_words

_ROWS = 256  # texts that are compared with all known ones at once


class TfidfIndex:
    """Index of texts for retrieval by tf-idf similarity.

    Similarity is the cosine of tf-idf vectors over lower-cased words, (1 + ln tf) ln(N / df)
    (Salton and Buckley 1988). An unknown word counts as if one known text had it, so a text outside
    the index has the cosines that it would have inside. A search compares each text with all N
    known ones.

    Args:
        texts: the known texts.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        counts = [_counts(text) for text in texts]
        frequency = Counter(word for row in counts for word in row)
        self._numbers = {word: index for index, word in enumerate(frequency)}
        self._rarity = (len(texts) / torch.tensor([*frequency.values(), 1])).log()
        self._corpus = self._vectors(counts)

    def nearest(
        self, texts: Sequence[str], count: int = 1, themselves: bool = True
    ) -> Iterator[list[tuple[int, float]]]:
        """Find the most similar known texts for each text.

        Args:
            texts: the query texts.
            count: maximum number of known texts for each.
            themselves: False if `texts` are the known ones, so that none finds itself.

        Yields:
            Indices of known texts with their cosines, highest first; ties in the texts' order.
        """
        num_texts = len(self._corpus.starts)
        count = min(count, num_texts if themselves else num_texts - 1)
        for start in range(0, len(texts), _ROWS):
            part = [_counts(text) for text in texts[start : start + _ROWS]]
            cosines = self._cosines(part)
            rows = torch.arange(len(part))
            if not themselves:
                cosines[rows, start + rows] = -1
            neighbors: list[list[tuple[int, float]]] = [[] for _ in part]
            for _ in range(count):
                likeness, indices = cosines.max(dim=1)
                cosines[rows, indices] = -1
                for matches, index, cosine in zip(neighbors, indices.tolist(), likeness.tolist()):
                    matches.append((index, round(cosine, 5)))  # a text's cosine with itself is 1
            yield from neighbors

    def _cosines(self, counts: Sequence[Counter[str]]) -> Tensor:
        """Return cosines of texts with all known texts, (rows, N)."""
        queries, corpus = self._vectors(counts), self._corpus
        dense = torch.zeros(len(self._rarity), len(counts))  # (V + 1, rows)
        dense[queries.words, queries.rows] = queries.weights
        cosines = functional.embedding_bag(
            corpus.words, dense, corpus.starts, mode="sum", per_sample_weights=corpus.weights
        )
        return cosines.T.clamp(0, 1).contiguous()

    def _vectors(self, counts: Sequence[Counter[str]]) -> "_Vectors":
        nowhere = len(self._numbers)
        entries = [
            (row, self._numbers.get(word, nowhere), times)
            for row, words in enumerate(counts)
            for word, times in words.items()
        ]
        rows, words, times = torch.tensor(entries, dtype=torch.long).view(-1, 3).T
        weights = (1 + times.float().log()) * self._rarity[words]
        squares = torch.zeros(len(counts)).index_add(0, rows, weights**2)
        weights = weights / squares.sqrt().clamp(min=1e-12)[rows]
        starts = torch.tensor([0, *map(len, counts)]).cumsum(0)[:-1]
        return _Vectors(rows.contiguous(), words.contiguous(), weights, starts)


class _Vectors(NamedTuple):
    """Sparse vectors of unit length, concatenated."""

    rows: Tensor
    words: Tensor
    weights: Tensor
    starts: Tensor
    """Start of each vector."""


def _counts(text: str) -> Counter[str]:
    return Counter(script_words(text))
