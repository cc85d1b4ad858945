"""Integrated gradients: gradients along the line from unknown words to the sentence."""

from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqattn.extras.explain.explanations.base import Contrasting, Explanation
from seqattn.extras.explain.explanations.gradients import (
    gradient_products,
    log_probability,
    moved_embeddings,
)
from seqattn.extras.explain.explanations.predictions import (
    ROWS,
    decoder_input,
    log_probabilities,
    without_padding,
)
from seqattn.models.base import Seq2SeqModel
from seqattn.tokens import PAD

_POINTS = 8
"""Points of the quadrature on a piece of a line."""
_NATS, _SHARE = 0.05, 0.01
"""Tolerance of a row's sum against its log-probability: the larger of the two."""


class IntegratedGradients(Contrasting):
    """Integrated gradients along the line from unknown words to the sentence.

    sum over d of (x_d - u_d) times the mean of dF/dx_d on the line, for F the log-probability of a
    target token in nats, or its difference from that of another, and u the embedding of the unknown
    word, at every token, begin and end marks included. `rest` is F with every token unknown, so a
    row adds up to F within the error of the quadrature, which lets the method check itself.

    F is nearly discontinuous on the line, most so in recurrent models. So the line is cut into
    pieces, each with a Gauss-Legendre quadrature of 8 points. The error of a piece is known: the
    difference between a row's sum and the change in F. Until each row of a sentence adds up to F
    within 0.05 nats or 1 %, the pieces with more than their share of a row's error are halved.

    The line begins at unknown words and not at zero vectors: a pre-norm model without added
    positions is discontinuous at zero, where a norm divides by nearly 0, so no practical number of
    points suffices. The tokens that a copying head may copy stay the same.

    Takes a backward pass at each point for each target token.

    Args:
        pieces: initial number of pieces of the line, at least 1.
        most: maximum number of pieces of a sentence's line.
    """

    name: ClassVar[str] = "integrated_gradients"
    cites: ClassVar[str] = "Sundararajan et al. 2017, arXiv 1703.01365"
    signed: ClassVar[bool] = True
    slow: ClassVar[bool] = True

    def __init__(self, pieces: int = 8, most: int = 64) -> None:
        self.pieces, self.most = pieces, most

    def explain(
        self, model: Seq2SeqModel, source: Tensor, target: Tensor, instead: Tensor | None = None
    ) -> Explanation:
        count, lines = len(source), _Lines(model, source, target, instead)
        every = torch.arange(count)
        scores = lines.scores(every, torch.ones(count))
        bearable = (_SHARE * scores.abs()).clamp(min=_NATS)
        ends = torch.linspace(0, 1, self.pieces + 1, dtype=torch.float64)
        low, high = ends[:-1].repeat(count), ends[1:].repeat(count)
        pieces = lines.integrals(every.repeat_interleave(self.pieces), low, high)
        while (coarse := self._too_coarse(pieces, bearable)).any():
            sentences, low, high = (part[coarse] for part in pieces[:3])
            middle = (low + high) / 2
            halves = torch.cat((low, middle)), torch.cat((middle, high))
            finer = lines.integrals(sentences.repeat(2), *halves)
            accurate = (part[~coarse.to(part.device)] for part in pieces)
            pieces = _Pieces(*map(torch.cat, zip(accurate, finer, strict=True)))
        by_source, by_prefix = (
            _by_sentence(part, pieces.sentences, count) for part in (pieces.source, pieces.prefix)
        )
        rest = lines.scores(every, torch.zeros(count))
        return without_padding(Explanation(by_source, by_prefix, rest), source, target)

    def _too_coarse(self, pieces: "_Pieces", bearable: Tensor) -> Tensor:
        """Return a mask (P,) of pieces to halve. Args: bearable: tolerance (B, T) of a line."""
        sentences, missed, bearable = pieces.sentences, pieces.missed.cpu(), bearable.cpu()
        rows = len(bearable)
        counts = torch.bincount(sentences, minlength=rows)
        unfit = _by_sentence(missed, sentences, rows).abs() > bearable
        more_than_share = missed.abs() > (bearable / counts[:, None])[sentences]
        coarse = (unfit[sentences] & more_than_share).any(dim=1)
        halved = torch.bincount(sentences[coarse], minlength=rows)
        return coarse & (counts + halved <= self.most)[sentences]


class _Pieces(NamedTuple):
    """Integrals over P pieces of lines; the first three are on the CPU."""

    sentences: Tensor
    """(P,) index of the sentence."""
    low: Tensor
    """(P,) start, as a share of the line."""
    high: Tensor
    """(P,) end, as a share of the line."""
    source: Tensor
    """(P, T, S)"""
    prefix: Tensor
    """(P, T, T)"""
    missed: Tensor
    """(P, T) sum of a row less the change of its log-probability."""


def _by_sentence(parts: Tensor, sentences: Tensor, count: int) -> Tensor:
    """Sum the parts of each sentence: (P, ...) -> (count, ...)."""
    sums = parts.new_zeros(count, *parts.shape[1:])
    return sums.index_add_(0, sentences.to(parts.device), parts)


class _Lines:
    """Lines from unknown words to the sentences of a batch. Args: as `Contrasting.explain`."""

    def __init__(
        self, model: Seq2SeqModel, source: Tensor, target: Tensor, instead: Tensor | None
    ) -> None:
        self.model, self.source, self.target, self.instead = model, source, target, instead

    def _instead(self, rows: Tensor) -> Tensor | None:
        return None if self.instead is None else self.instead[rows]

    def integrals(self, sentences: Tensor, low: Tensor, high: Tensor) -> _Pieces:
        """Return integrals over pieces. Args: as `_Pieces`."""
        nodes, weights = map(torch.from_numpy, np.polynomial.legendre.leggauss(_POINTS))
        width = (high - low)[:, None] / 2  # relative to [-1, 1]
        shares, gains = low[:, None] + width * (nodes + 1), width * weights
        integrals = []
        for some in torch.arange(len(sentences)).split(max(1, ROWS // _POINTS)):
            rows = sentences[some].repeat_interleave(_POINTS)
            texts, at = (self.source[rows], self.target[rows]), shares[some].flatten()
            products = gradient_products(
                self.model, *texts, at, log_probability, True, self._instead(rows)
            )
            points = (products.source, products.prefix)
            gain = gains[some].to(products.source)
            integrals.append(
                [torch.einsum("pn,pn...->p...", gain, x.unflatten(0, gain.shape)) for x in points]
            )
        source, prefix = (torch.cat(parts) for parts in zip(*integrals, strict=True))
        gained = self.scores(sentences, high) - self.scores(sentences, low)
        missed = source.sum(dim=2) + prefix.sum(dim=2) - gained
        missed = missed.masked_fill(self.target[sentences] == PAD, 0.0)
        return _Pieces(sentences, low, high, source, prefix, missed)

    def scores(self, sentences: Tensor, shares: Tensor) -> Tensor:
        """Return F (P, T) of target tokens at shares (P,) of the lines."""
        scores = []
        for some in torch.arange(len(sentences)).split(ROWS):
            rows = sentences[some]
            target = self.target[rows]
            texts = (self.source[rows], decoder_input(target), target, self._instead(rows))
            with moved_embeddings(self.model, shares[some], from_unknown=True):
                scores.append(log_probabilities(self.model, *texts))
        return torch.cat(scores)
