"""Statistics of attention heads over some sentences, and the roles that they imply."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqattn.analysis.capture import makers, place_of
from seqattn.analysis.pairs import Pair
from seqattn.attention.experts import MixtureOfAttention
from seqattn.extras.pictures.head_sums import HeadSums, watching
from seqattn.generation.base import inference
from seqattn.generation.forced_decoding import padded, target_log_probabilities
from seqattn.models.base import Seq2SeqModel
from seqattn.tokens import BOS, EOS, PAD

POSITIONAL, ALIGNED, MARKED, BROAD = 0.9, 0.5, 0.5, 0.8
"""Thresholds of the roles, see `HeadFigures.role`."""
_BATCH = 32


class HeadFigures(NamedTuple):
    """Statistics of a head, each averaged over the queries of all sentences.

    A statistic is None if no query qualifies: a decoder sees no later position, cross-attention
    has no relative positions, and an expert may get no tokens.
    """

    entropy: float | None
    """Entropy of the weights, in nats."""
    relative_entropy: float | None
    """Entropy relative to uniform weights over the visible keys, for queries with two or more."""
    confidence: float | None
    """Largest weight, ignoring that of `</s>` (Voita et al. 2019, arXiv 1905.09418)."""
    mark: float | None
    """Mass on the source's `</s>`, or on `<s>` in decoder self-attention."""
    before: float | None
    """Mass on the previous position, if visible."""
    own: float | None
    """Mass on the query's own position."""
    after: float | None
    """Mass on the next position."""
    rare: float | None
    """Mass on the rarest tokens of the sentence, by counts in all sentences."""
    rare_if_uniform: float | None
    """Mass that uniform weights would put on them."""
    place: int | None
    """Most frequent relative position of the largest weight, from -3 to 3."""
    positional: float | None
    """Share of largest weights at that relative position, among queries that see it and another
    one."""
    alignment: float | None
    """Share of largest weights on the source token whose removal makes the target token least
    likely."""

    @property
    def role(self) -> str:
        """First matching role: positional, alignment, end (begin in a decoder), broad; else mixed.

        Positional: at least 0.9 of its largest weights are at one relative position (Voita et al.
        2019, arXiv 1905.09418). Alignment: in cross-attention, at least 0.5 of them are on the
        decisive source token. End or begin: at least 0.5 of its mass is on the mark, which means
        an inactive head (Clark et al. 2019, arXiv 1906.04341). Broad: at least 0.8 of the entropy
        of uniform weights.
        """
        if self.entropy is None:
            return "unused"
        is_decoder = self.own is not None and self.after is None
        candidates = {
            "positional": (self.positional, POSITIONAL),
            "alignment": (self.alignment, ALIGNED),
            "begin" if is_decoder else "end": (self.mark, MARKED),
            "broad": (self.relative_entropy, BROAD),
        }
        fitting = (name for name, (x, least) in candidates.items() if x is not None and x >= least)
        return next(fitting, "mixed")


def head_figures(model: Seq2SeqModel, pairs: Sequence[Pair]) -> dict[str, list[HeadFigures]]:
    """Return the statistics of every head of every attention with weights, by attention name.

    Sentences are weighted by their tokens; neither batches nor padding matter. The heads of a
    mixture are its experts, each over the tokens that chose it.

    Args:
        model: in eval mode.
        pairs: sentences with their targets.
    """
    counts = [Counter(token for side in sides for token in side) for sides in _sides(pairs)]
    sums: dict[str, HeadSums] = {}
    for first in range(0, len(pairs), _BATCH):
        batch = pairs[first : first + _BATCH]
        with inference(model) as device, watching(model) as watched:
            source, read = (padded(side).to(device) for side in _sides(batch))
            model(source, read)
        decides = padded([deciding_tokens(model, pair).tolist() for pair in batch], -1).to(device)
        for name, calls in watched.items():
            reads_source = name.startswith("encoder.")
            across = not name.endswith("self_attention")
            keys, known = (source, counts[0]) if reads_source or across else (read, counts[1])
            queries = source if reads_source else read
            sums.setdefault(name, HeadSums(calls.heads)).add(
                *calls.joined(), keys, queries != PAD, _rarest(keys, known),
                decides if across else None,
            )  # fmt: skip
    return {
        name: [_figures(head_sums, head) for head in range(head_sums.heads)]
        for name, head_sums in sums.items()
    }


def _sides(pairs: Sequence[Pair]) -> tuple[list[Sequence[int]], list[Sequence[int]]]:
    return [pair.source for pair in pairs], [pair.read for pair in pairs]


def _rarest(keys: Tensor, counts: Counter[int]) -> Tensor:
    """Return a mask of the rarest keys (B, S) of each sentence, ignoring marks."""
    limit = 1 + counts.total()
    by_key = [
        [counts[key] if key not in (PAD, BOS, EOS) else limit for key in row]
        for row in keys.tolist()
    ]
    frequencies = torch.tensor(by_key, device=keys.device)
    least = frequencies.min(dim=1, keepdim=True).values
    return (frequencies == least) & (frequencies < limit)


def _figures(sums: HeadSums, head: int) -> HeadFigures:
    position, share = sums.commonest_offset(head)
    names = ("entropy", "relative_entropy", "confidence", "mark", "before", "own", "after", "rare")
    means = [sums.mean(name, head) for name in (*names, "rare_if_uniform")]
    return HeadFigures._make([*means, position, share, sums.mean("alignment", head)])


def deciding_tokens(model: Seq2SeqModel, pair: Pair) -> Tensor:
    """Return for each target token the source position whose removal hurts it most: (T,).

    Each source token except the end mark is left out in turn. -1 for the target's end mark, or if
    the source has only one token.
    """
    source = list(pair.source)
    decides = torch.full((len(pair.target),), -1)
    if len(source) > 2:
        cut = [Pair(source[:j] + source[j + 1 :], pair.target) for j in range(len(source) - 1)]
        likely = torch.stack(target_log_probabilities(model, cut))  # (J, T)
        decides[:-1] = likely.argmin(dim=0)[:-1]
    return decides


class HeadRow(NamedTuple):
    """Head with its role, its importance within its attention, and its statistics."""

    role: str
    """Role of the head, "unknown" if it has no weights."""
    importance: float | None
    figures: HeadFigures | None


class AttentionHeads(NamedTuple):
    """Heads of one attention.

    `slot` is encoder, decoder or cross, and `layer` counts from 1; "" and None elsewhere.
    """

    slot: str
    layer: int | None
    heads: list[HeadRow]
    reasons: list[str]
    """Reasons why some of it is unknown."""
    experts: bool = False
    """True for experts of a mixture, whose weights no map shows."""

    def plain(self) -> dict[str, Any]:
        """Return plain values for JSON, each head as one dict."""
        rows = [
            {"role": head.role, "importance": head.importance,
             **({} if head.figures is None else head.figures._asdict())}
            for head in self.heads
        ]  # fmt: skip
        return {**self._asdict(), "heads": rows}


def attention_heads(
    model: nn.Module, name: str, figures: list[HeadFigures] | None, importance: Tensor | None
) -> AttentionHeads:
    """Combine the statistics of one attention.

    `figures` are None if it has no weights; `importance` (H,) is None if it has no heads to remove.
    """
    reasons = []
    if figures is None:
        kind = type(dict(makers(model))[name]).__name__
        reasons.append(f"{kind} has no weights over keys; only importance is shown")
    if importance is None:
        reasons.append("it has one alignment and no heads to remove; importance is not defined")
    scores = [None] * len(figures or ()) if importance is None else importance.tolist()
    statistics: Sequence[HeadFigures | None] = figures or [None] * len(scores)
    pairs = zip(statistics, scores, strict=True)
    rows = [HeadRow(head.role if head else "unknown", score, head) for head, score in pairs]
    experts = isinstance(model.get_submodule(name), MixtureOfAttention)
    slot, layer = place_of(name)
    if layer is None:
        return AttentionHeads("", None, rows, reasons, experts)
    return AttentionHeads(slot, layer + 1, rows, reasons, experts)
