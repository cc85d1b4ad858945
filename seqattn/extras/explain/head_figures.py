"""What each head of each attention looks at, over some sentences, and the role that this gives."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqattn.analysis.capture import makers, place_of
from seqattn.analysis.head_sums import Sums, watching
from seqattn.analysis.pairs import Pair
from seqattn.attention.experts import MixtureOfAttention
from seqattn.generation.base import inference
from seqattn.generation.forced import padded, target_log_probabilities
from seqattn.models.base import Seq2SeqModel
from seqattn.tokens import BOS, EOS, PAD

POSITIONAL, ALIGNED, MARKED, BROAD = 0.9, 0.5, 0.5, 0.8
"""From where on a head has a role, as `HeadFigures.role` says."""
_BATCH = 32


class HeadFigures(NamedTuple):
    """What a head does, each figure a mean over the queries of all sentences.

    None where there is nothing to take a mean of: a decoder sees no place after its own, places of
    two languages are no neighbours, and an expert may be chosen by no token.
    """

    entropy: float | None
    """Of the weights, in nats."""
    relative_entropy: float | None
    """Divided by that of uniform weights over the keys that the query sees, where it sees two."""
    confidence: float | None
    """The largest weight, that of `</s>` left out (Voita et al. 2019, arXiv 1905.09418)."""
    mark: float | None
    """Mass on the source's `</s>`; in a decoder's own, which has none, on `<s>`."""
    before: float | None
    """Mass on the place before the query's own, where there is one that it sees."""
    own: float | None
    """Mass on the query's own place."""
    after: float | None
    """Mass on the place after it."""
    rare: float | None
    """Mass on the rarest token of the sentence (of all as rare), by counts in all sentences."""
    rare_if_uniform: float | None
    """What uniform weights would give it."""
    place: int | None
    """The place, relative to the query's, of most of its largest weights; from -3 to 3."""
    positional: float | None
    """The share of its largest weights that are there, of the queries that see that place and
    another one."""
    alignment: float | None
    """How often its largest weight is on the source token without which the model finds the target
    token least likely."""

    @property
    def role(self) -> str:
        """The first that fits of positional, alignment, end (begin in a decoder) and broad; mixed.

        Positional: at least 0.9 of its largest weights are at one relative place (Voita et al.
        2019, arXiv 1905.09418). Alignment: at least 0.5 of them, of cross-attention, are on the
        source token that decides. End or begin: at least 0.5 of its mass is on the mark, a head at
        rest (Clark et al. 2019, arXiv 1906.04341). Broad: at least 0.8 of the entropy of uniform
        weights.
        """
        if self.entropy is None:
            return "unused"
        is_decoder = self.own is not None and self.after is None
        found = {
            "positional": (self.positional, POSITIONAL),
            "alignment": (self.alignment, ALIGNED),
            "begin" if is_decoder else "end": (self.mark, MARKED),
            "broad": (self.relative_entropy, BROAD),
        }
        fitting = (name for name, (x, least) in found.items() if x is not None and x >= least)
        return next(fitting, "mixed")


def head_figures(model: Seq2SeqModel, pairs: Sequence[Pair]) -> dict[str, list[HeadFigures]]:
    """The figures of every head of every attention with weights, by the attention's name.

    Sentences count by their tokens; neither batches nor padding matter. The heads of a mixture are
    its experts, each over the tokens that chose it.

    Args:
        model: in eval mode.
        pairs: sentences with their targets.
    """
    counts = [Counter(token for side in sides for token in side) for sides in _sides(pairs)]
    sums: dict[str, Sums] = {}
    for first in range(0, len(pairs), _BATCH):
        batch = pairs[first : first + _BATCH]
        with inference(model) as device, watching(model) as seen:
            source, read = (padded(side).to(device) for side in _sides(batch))
            model(source, read)
        decides = padded([deciding_tokens(model, pair).tolist() for pair in batch], -1).to(device)
        for name, calls in seen.items():
            reads_source = name.startswith("encoder.")
            across = not name.endswith("self_attention")
            keys, known = (source, counts[0]) if reads_source or across else (read, counts[1])
            queries = source if reads_source else read
            sums.setdefault(name, Sums(calls.heads)).add(
                *calls.joined(), keys, queries != PAD, _rarest(keys, known),
                decides if across else None,
            )  # fmt: skip
    return {
        name: [_figures(found, head) for head in range(found.heads)] for name, found in sums.items()
    }


def _sides(pairs: Sequence[Pair]) -> tuple[list[Sequence[int]], list[Sequence[int]]]:
    return [pair.source for pair in pairs], [pair.read for pair in pairs]


def _rarest(keys: Tensor, counts: Counter[int]) -> Tensor:
    """Which of the keys (B, S) are as rare as the rarest of their sentence, marks left out."""
    most = 1 + counts.total()
    by_key = [
        [counts[key] if key not in (PAD, BOS, EOS) else most for key in row]
        for row in keys.tolist()
    ]
    found = torch.tensor(by_key, device=keys.device)
    least = found.min(dim=1, keepdim=True).values
    return (found == least) & (found < most)


def _figures(sums: Sums, head: int) -> HeadFigures:
    place, share = sums.commonest_place(head)
    names = ("entropy", "relative_entropy", "confidence", "mark", "before", "own", "after", "rare")
    means = [sums.mean(name, head) for name in (*names, "rare_if_uniform")]
    return HeadFigures._make([*means, place, share, sums.mean("alignment", head)])


def deciding_tokens(model: Seq2SeqModel, pair: Pair) -> Tensor:
    """For each target token the place of the source token without which it is least likely: (T,).

    Each source token is left out in turn, its end mark never. -1 for the target's end mark, and
    where the source has one token alone.
    """
    source = list(pair.source)
    decides = torch.full((len(pair.target),), -1)
    if len(source) > 2:
        cut = [Pair(source[:j] + source[j + 1 :], pair.target) for j in range(len(source) - 1)]
        likely = torch.stack(target_log_probabilities(model, cut))  # (J, T)
        decides[:-1] = likely.argmin(dim=0)[:-1]
    return decides


class HeadRow(NamedTuple):
    """One head: its role, its importance within its attention, and its figures."""

    role: str
    """ "unknown" where it has no weights."""
    importance: float | None
    figures: HeadFigures | None


class AttentionHeads(NamedTuple):
    """The heads of one attention.

    `slot` is encoder, decoder or cross, and `layer` counts from 1; "" and None elsewhere.
    """

    slot: str
    layer: int | None
    heads: list[HeadRow]
    reasons: list[str]
    """Why some of it is not known."""
    experts: bool = False
    """Whether they are those of a mixture, so that no map of weights is of one of them."""

    def plain(self) -> dict[str, Any]:
        """As JSON has it, each head in one dict."""
        rows = [
            {"role": head.role, "importance": head.importance,
             **({} if head.figures is None else head.figures._asdict())}
            for head in self.heads
        ]  # fmt: skip
        return {**self._asdict(), "heads": rows}


def attention_heads(
    model: nn.Module, name: str, figures: list[HeadFigures] | None, importance: Tensor | None
) -> AttentionHeads:
    """Puts together what is known of one attention.

    `figures` are None where it has no weights; `importance` (H,) is None where it has no heads to
    take out.
    """
    reasons = []
    if figures is None:
        kind = type(dict(makers(model))[name]).__name__
        reasons.append(f"{kind} has no weights over keys, so importance alone is known")
    if importance is None:
        reasons.append("its one alignment is no head that could be taken out: no importance")
    scores = [None] * len(figures or ()) if importance is None else importance.tolist()
    shown: Sequence[HeadFigures | None] = figures or [None] * len(scores)
    pairs = zip(shown, scores, strict=True)
    rows = [HeadRow(one.role if one else "unknown", score, one) for one, score in pairs]
    experts = isinstance(model.get_submodule(name), MixtureOfAttention)
    slot, layer = place_of(name)
    if layer is None:
        return AttentionHeads("", None, rows, reasons, experts)
    return AttentionHeads(slot, layer + 1, rows, reasons, experts)
