"""What summaries are worth that need no model: the first sentence, a like document's summary."""

import re
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

_WORD = re.compile(r"\w+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_ROWS = 256  # documents that are compared at once


def first_sentences(documents: Sequence[str]) -> list[str]:
    """Summarises each document by its first sentence, or its first line where that is shorter."""
    return [_SENTENCE_END.split(document.strip())[0] for document in documents]


def nearest_summaries(
    documents: Sequence[str], known: Sequence[str], summaries: Sequence[str]
) -> list[str]:
    """Gives each document the summary of the known document that is most like it.

    Alike by the cosine of tf-idf vectors over lower-cased words, (1 + ln tf) ln(N / df) (Salton and
    Buckley 1988). What this scores can be had by memory alone.

    Args:
        documents: M.
        known: N documents to choose from, such as those of the training split.
        summaries: N.

    Returns:
        M summaries; the first where nothing is alike.
    """
    counts = [_counts(text) for text in known]
    frequency = Counter(word for row in counts for word in row)
    number = {word: place for place, word in enumerate(frequency)}
    rarity = (len(known) / torch.tensor([*frequency.values()], dtype=torch.float32)).log()
    table = _vectors(counts, number, rarity)
    chosen: list[int] = []
    for start in range(0, len(documents), _ROWS):
        asked = [_counts(text) for text in documents[start : start + _ROWS]]
        likeness = table @ _vectors(asked, number, rarity).to_dense().T  # (N, V) (V, rows)
        chosen += likeness.argmax(dim=0).tolist()
    return [summaries[place] for place in chosen]


def _counts(text: str) -> Counter[str]:
    return Counter(_WORD.findall(text.lower()))


def _vectors(counts: Sequence[Counter[str]], number: dict[str, int], rarity: Tensor) -> Tensor:
    """Sparse (rows, V) of unit length; words without a number are left out."""
    rows, columns, times = [], [], []
    for row, words in enumerate(counts):
        for word, count in words.items():
            if word in number:
                rows.append(row)
                columns.append(number[word])
                times.append(count)
    places = torch.tensor([rows, columns], dtype=torch.long).view(2, -1)
    weights = (1 + torch.tensor(times, dtype=torch.float32).log()) * rarity[places[1]]
    squares = torch.zeros(len(counts)).index_add(0, places[0], weights**2)
    weights = weights / squares.sqrt().clamp(min=1e-12)[places[0]]
    shape = (len(counts), len(number))
    return torch.sparse_coo_tensor(places, weights, shape, check_invariants=False).coalesce()
