"""Signals of whether an output can be trusted, for sentences and for words."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import inf, log
from typing import Any, NamedTuple

from torch import Tensor

from seqattn.bundle.bundle import Bundle
from seqattn.extras.explain.explanations import METHODS, explain
from seqattn.generation.base import inference
from seqattn.generation.forced_decoding import (
    Sides,
    batches,
    forced_log_probabilities,
    padded,
    target_log_probabilities,
)
from seqattn.metrics.scripts import split_words
from seqattn.models.base import Seq2SeqModel
from seqattn.tokens import EOS

SIGNALS = {
    "log_probability": 1, "weakest": 1, "contrast": 1, "source_share": 1, "coverage": 1,
    "repetition": -1, "copied": 0, "length": 0,
}  # fmt: skip
"""Signals, each with 1 if higher is better, -1 if lower is, and 0 if the usual value is best."""
_AT_ONCE, _LARGEST, _NUMBERS, _SOURCES = 512, 1 << 16, 1 << 26, 64
"""Padded tokens per side of a batch, source times output tokens of a pair, and its longer side
squared times the width, for ALTI; sources whose words are removed together."""
LONGEST = 128
"""Words of the longest source of which `use` is computed."""
Word = tuple[str, list[int]]
"""A word, and the indices of its pieces."""


class Read(NamedTuple):
    """A source and its output as ids, each with its end, and as words."""

    ids: Sides
    source: list[Word]
    output: list[Word]


class Reading(NamedTuple):
    """Signals of a pair, and of its words."""

    signals: dict[str, float]
    support: list[float]
    """Nats by which each output word is supported, see `signals_of`."""
    use: list[float]
    """Nats that each source word adds to the output, infinite if not computed."""


def merit(name: str, value: Any, mean: float, spread: float) -> Any:
    """Return how good the values of a signal are, in standard deviations.

    Args:
        name: the signal.
        value: a number or an array.
        mean, spread: mean and standard deviation of the signal.
    """
    distance = (value - mean) / spread
    return SIGNALS[name] * distance if SIGNALS[name] else -abs(distance)


def signals_of(bundle: Bundle, pairs: Sequence[Read], words: bool = True) -> list[Reading]:
    """Return the signals of pairs by the bundle's own model.

    Log-probabilities are in nats per output token, the end included. Without a source means a
    source of its end token only (after the pieces that begin every source).

    - `log_probability`: log p(output | source); `weakest`: that of the least likely token;
      `contrast`: the first less that without a source.
    - `source_share`: the source's part in the output by ALTI (Ferrando et al. 2022, arXiv
      2205.11631); `coverage`: each source word's largest part in an output token, a mean over words
      (after Dale et al. 2022, arXiv 2212.08597). Absent for long pairs, and without ALTI.
    - `repetition`: share of the output's pairs of words that occurred before, less the source's;
      `copied`: of its words that the source has; `length`: log of words per source word.
    - `support` of an output word: log p(piece | source), a mean over its pieces; `use` of a
      source word: log p(output | source) less that without the word (after Vamvas and Sennrich
      2022, arXiv 2203.01927). Both are infinite without a letter or digit.

    Args:
        bundle: bundle of a text model.
        pairs: no longer than the model allows.
        words: True for `use`, which takes one pass for each source word.
    """
    model, ids = bundle.model, [pair.ids for pair in pairs]
    likely = target_log_probabilities(model, ids)
    nothing = [*bundle.tokenizer.source_begin, EOS]
    priors = target_log_probabilities(model, [(nothing, target) for _, target in ids])
    shares = _shares(model, ids)
    uses = _uses(model, pairs, likely) if words else ([inf] * len(pair.source) for pair in pairs)
    return [
        Reading(_signals(pair, values, prior, part), _supports(pair, values), use)
        for pair, values, prior, part, use in zip(pairs, likely, priors, shares, uses, strict=True)
    ]


def _supports(pair: Read, values: Tensor) -> list[float]:
    return [float(values[pieces].mean()) if _is_word(word) else inf for word, pieces in pair.output]


def _signals(pair: Read, likely: Tensor, prior: Tensor, shares: Tensor | None) -> dict[str, float]:
    source, output = (
        split_words(" ".join(word for word, _ in side)) for side in (pair.source, pair.output)
    )
    real_words = [word for word in output if _is_word(word)]
    signals = {
        "log_probability": float(likely.mean()),
        "weakest": float(likely.min()),
        "contrast": float((likely - prior).mean()),
        "repetition": max(0.0, _repeated(output) - _repeated(source)),
        "copied": sum(word in source for word in real_words) / max(1, len(real_words)),
        "length": log(max(1, len(output)) / max(1, len(source))),
    }
    if shares is not None:
        parts = [float(shares[:, pieces].sum(1).max()) for _, pieces in pair.source]
        signals["source_share"] = float(shares.sum(1).mean())
        signals["coverage"] = sum(parts) / max(1, len(parts))
    return signals


def _repeated(words: Sequence[str]) -> float:
    """Return the share of pairs of adjacent words that occurred before."""
    bigrams = [*pairwise(words)]
    return 1 - len({*bigrams}) / len(bigrams) if bigrams else 0.0


def _is_word(word: str) -> bool:
    return any(map(str.isalnum, word))


def _shares(model: Seq2SeqModel, pairs: Sequence[Sides]) -> list[Tensor | None]:
    """Return ALTI's contributions (T, S) of the source, or None, for each pair."""
    results: list[Tensor | None] = [None] * len(pairs)
    tables = model.source_embedding.table, model.target_embedding.table
    longest = (_NUMBERS // max(table.embedding_dim for table in tables)) ** 0.5
    sizes = [(len(source), len(target)) for source, target in pairs]
    short = [n for n, (s, t) in enumerate(sizes) if s * t <= _LARGEST and max(s, t) <= longest]
    if METHODS["alti"].why_not(model):
        return results
    with inference(model) as device:
        for batch in batches([pairs[n] for n in short], _AT_ONCE):
            rows = [short[index] for index in batch]
            source, target = (padded([pairs[n][side] for n in rows]).to(device) for side in (0, 1))
            shares = explain(model, source, target, "alti").source.cpu().double()
            for n, share in zip(rows, shares, strict=True):
                results[n] = share[: len(pairs[n][1]), : len(pairs[n][0])]
    return results


def _uses(
    model: Seq2SeqModel, pairs: Sequence[Read], likely: Sequence[Tensor]
) -> Iterator[list[float]]:
    """Yield what each word of a source adds to the log-probability of the output."""
    for start in range(0, len(pairs), _SOURCES):
        part = [pair for pair in pairs[start : start + _SOURCES] if len(pair.source) <= LONGEST]
        words = [(pair, pieces) for pair in part for word, pieces in pair.source if _is_word(word)]
        scores = iter(forced_log_probabilities(model, [_without(*removed) for removed in words]))
        for pair, values in zip(pairs[start : start + _SOURCES], likely[start:]):
            tried = len(pair.source) <= LONGEST
            yield [
                float(values.sum()) - next(scores) if tried and _is_word(word) else inf
                for word, _ in pair.source
            ]


def _without(pair: Read, pieces: Sequence[int]) -> Sides:
    """Return ids of a pair without those places of the source."""
    source, target = pair.ids
    return [token for index, token in enumerate(source) if index not in pieces], target
