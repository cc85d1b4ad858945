"""Faithfulness of contributions: change in a model's outputs without the top tokens."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from seqattn.analysis.pairs import Pair
from seqattn.generation.forced_decoding import target_log_probabilities
from seqattn.models.base import Seq2SeqModel

PERCENTS = (1, 5, 10, 20, 50)
"""Percentages of source tokens that are removed or retained (DeYoung et al. 2020)."""


class Faithfulness(NamedTuple):
    """Faithfulness of contributions, averaged over all target tokens."""

    comprehensiveness: float
    """Drop in the target token's probability without the top tokens, averaged over `PERCENTS`;
    higher is better."""
    sufficiency: float
    """Drop with only the top tokens left; lower is better."""
    correlation: float
    """Kendall's tau-b with leave-one-out, from -1 to 1; NaN if all contributions are equal."""
    removed: tuple[float, ...]
    """Probability of the target token without the top tokens, for each of `PERCENTS`."""
    kept: tuple[float, ...]
    """Probability with only the top tokens."""


_Read = Mapping[tuple[int, int], Tensor]
"""Probabilities of a pair's first targets, by its row and the remaining source tokens as bits."""


class Judged(NamedTuple):
    """Faithfulness of each method, and the probability of the targets with complete sources."""

    methods: dict[str, Faithfulness]
    probability: float


def judge(
    model: Seq2SeqModel,
    pairs: Sequence[Pair],
    contributions: Mapping[str, Sequence[Tensor]],
    progress: Callable[[int, int], object] | None = None,
) -> Judged:
    """Compute comprehensiveness, sufficiency and correlation with leave-one-out of several methods.

    Comprehensiveness and sufficiency are those of ERASER (DeYoung et al. 2020, arXiv 1911.03429,
    eq. 1 and 2), as areas over the perturbation curve, without its point at 0 %. A removed
    token is deleted from the source's ids, which works for every model and mechanism, and later
    tokens move up; the end mark always stays and is not ranked. The top p % of n tokens are
    p * n / 100, rounded up. Among equal contributions the first ranks highest.

    Every reduced source that any method needs is read once, up to the last target token needed, in
    batches of similar lengths.

    Args:
        model: in eval mode.
        pairs: N pairs, each with at least one source token besides the end mark.
        contributions: for each method, N times (T, S) over source tokens, the end mark included.
        progress: callback with the number of reduced sources read so far, and in total.
    """
    tops = {
        name: [_top_sets(one[:, :-1]) for one in tensors] for name, tensors in contributions.items()
    }
    read = _read_parts(model, pairs, _token_counts(pairs, tops.values()), progress)
    probability = float(
        torch.cat([read[row, _all_of(pair)] for row, pair in enumerate(pairs)]).mean()
    )
    drops = [_leave_one_out(read, row, pair) for row, pair in enumerate(pairs)]
    methods = {}
    for name, tensors in contributions.items():
        removed, retained = _curves(read, pairs, tops[name])
        correlations = [
            kendall(one[:, :-1], drop) for one, drop in zip(tensors, drops, strict=True)
        ]
        methods[name] = Faithfulness(
            probability - sum(removed) / len(removed),
            probability - sum(retained) / len(retained),
            float(torch.cat(correlations).nanmean()),
            removed,
            retained,
        )
    return Judged(methods, probability)


def random_contributions(pairs: Sequence[Pair], seed: int = 0) -> list[Tensor]:
    """Return random contributions, uniform between 0 and 1: (T, S) for each pair."""
    draws = torch.Generator().manual_seed(seed)
    return [torch.rand(len(pair.target), len(pair.source), generator=draws) for pair in pairs]


def kendall(first: Tensor, second: Tensor) -> Tensor:
    """Return Kendall's tau-b of rows (T, n) of two rankings, with ties; NaN if one is all ties."""
    one, other = ((x[:, :, None] - x[:, None, :]).sign().double() for x in (first, second))
    differ = one.abs().sum(dim=(1, 2)) * other.abs().sum(dim=(1, 2))
    return (one * other).sum(dim=(1, 2)) / differ.sqrt()


def _top_sets(contributions: Tensor) -> list[list[int]]:
    """Return for each row the top tokens by each of `PERCENTS`, as the bits of a number."""
    n = contributions.shape[1]
    counts = [-(-percent * n // 100) for percent in PERCENTS]
    sets = []
    for order in contributions.argsort(dim=1, descending=True, stable=True).tolist():
        grown = [0]
        for index in order:
            grown.append(grown[-1] | 1 << index)
        sets.append([grown[count] for count in counts])
    return sets


def _all_of(pair: Pair) -> int:
    """Return a bit mask of all source tokens except the end mark."""
    return (1 << (len(pair.source) - 1)) - 1


def _token_counts(
    pairs: Sequence[Pair], tops: Iterable[Sequence[list[list[int]]]]
) -> dict[tuple[int, int], int]:
    """Return the number of target tokens needed, by the pair's row and remaining source tokens."""
    counts: dict[tuple[int, int], int] = {}
    for row, pair in enumerate(pairs):
        complete = _all_of(pair)
        for remaining in (
            complete,
            *(complete & ~(1 << index) for index in range(len(pair.source) - 1)),
        ):
            counts[row, remaining] = len(pair.target)
        for ranked in tops:
            for t, sets in enumerate(ranked[row], 1):
                for remaining in (*sets, *(complete & ~one for one in sets)):
                    counts[row, remaining] = max(t, counts.get((row, remaining), 0))
    return counts


def _read_parts(
    model: Seq2SeqModel,
    pairs: Sequence[Pair],
    counts: Mapping[tuple[int, int], int],
    progress: Callable[[int, int], object] | None,
) -> _Read:
    parts = []
    for (row, remaining), count in counts.items():
        *tokens, end = pairs[row].source
        source = [token for index, token in enumerate(tokens) if remaining >> index & 1]
        parts.append(Pair([*source, end], pairs[row].target[:count]))
    log_probabilities = target_log_probabilities(model, parts, progress)
    return {part: output.exp() for part, output in zip(counts, log_probabilities, strict=True)}


def _leave_one_out(read: _Read, row: int, pair: Pair) -> Tensor:
    """Return the drop (T, n) in each target token's probability without each source token."""
    complete, indices = _all_of(pair), range(len(pair.source) - 1)
    without = [read[row, complete & ~(1 << index)] for index in indices]
    return read[row, complete][:, None] - torch.stack(without, dim=1)


def _curves(
    read: _Read, pairs: Sequence[Pair], tops: Sequence[list[list[int]]]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean probabilities without, and with only, the top tokens for each of `PERCENTS`."""
    removed, retained = [], []
    for row, pair in enumerate(pairs):
        complete = _all_of(pair)
        for t, sets in enumerate(tops[row]):
            removed.append([float(read[row, complete & ~tokens][t]) for tokens in sets])
            retained.append([float(read[row, tokens][t]) for tokens in sets])
    means = torch.tensor([removed, retained], dtype=torch.float64).mean(dim=1).tolist()
    return tuple(means[0]), tuple(means[1])
