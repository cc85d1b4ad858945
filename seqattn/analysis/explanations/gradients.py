"""Methods by gradients at the embeddings of what is read."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqattn.analysis.explanations.base import Explanation, Method
from seqattn.analysis.explanations.predictions import (
    ROWS,
    decoder_input,
    log_probabilities,
    without_padding,
)
from seqattn.layers.embedding import Embedding
from seqattn.models.base import Seq2SeqModel
from seqattn.models.head import DecoderOutput
from seqattn.tokens import PAD, UNK

_NATS, _SHARE = 0.05, 0.01
"""By how much a row of integrated gradients may miss its log-probability: the larger of both."""


class InputXGradient(Method):
    """Each token's embedding times the gradient at it: sum over d of x_d dF/dx_d.

    F is log p / (1 - p), the log-odds of a target token, x the embedding before positions are
    added. The log-probability has the same gradient but for a factor, which vanishes where the
    model is sure. `rest` is what the linear approximation leaves, so that a row adds up to F. One
    backward pass for each target token.
    """

    name: ClassVar[str] = "input_x_gradient"
    cites: ClassVar[str] = "Shrikumar et al. 2016, arXiv 1605.01713"
    signed: ClassVar[bool] = True

    def explain(self, model: Seq2SeqModel, source: Tensor, target: Tensor) -> Explanation:
        found = _products(model, source, target, torch.ones(1), _log_odds, from_unknown=False)
        by_source, by_prefix = found.source[0], found.prefix[0]
        rest = found.scores[0] - by_source.sum(dim=2) - by_prefix.sum(dim=2)
        return without_padding(Explanation(by_source, by_prefix, rest), source, target)


class IntegratedGradients(Method):
    """Gradients along the straight line of embeddings from unknown words to the sentence.

    sum over d of (x_d - u_d) times the mean of dF/dx_d on the line, for F the log-probability of a
    target token in nats and u the embedding of the unknown word, at every token, the begin and the
    ends included. `rest` is F where every token is unknown; so a row adds up to F, to the error of
    the quadrature (Gauss-Legendre), which is the method's own check: it is large where F leaps on
    the line, as that of recurrent models may. The points of a sentence are doubled until each of
    its rows adds up to 0.05 nats or 1 %.

    The line begins at unknown words and not at zero vectors, since a model with norms before its
    sublayers and no added positions leaps at zero, where a norm divides by nearly nothing: no
    number of steps that one can wait for is then enough. What a copying head may copy stays.

    `steps` backward passes for each target token, and twice as many with each doubling.

    Args:
        steps: points on the line at first, at least 1.
        most: no more points than these.
    """

    name: ClassVar[str] = "integrated_gradients"
    cites: ClassVar[str] = "Sundararajan et al. 2017, arXiv 1703.01365"
    signed: ClassVar[bool] = True
    slow: ClassVar[bool] = True

    def __init__(self, steps: int = 64, most: int = 512) -> None:
        self.steps, self.most = steps, most

    def explain(self, model: Seq2SeqModel, source: Tensor, target: Tensor) -> Explanation:
        steps, found = self.steps, self._on_line(model, source, target, self.steps)
        scores = log_probabilities(model, source, decoder_input(target), target)
        while True:
            errors = (_totals(found) - scores).masked_fill(target == PAD, 0.0).abs()
            fits = (errors <= (_SHARE * scores.abs()).clamp(min=_NATS)).all(dim=1)
            if fits.all() or 2 * steps > self.most:
                return found
            steps, rows = 2 * steps, (~fits).nonzero()[:, 0]
            finer = self._on_line(model, source[rows], target[rows], steps)
            for part, other in zip(found, finer, strict=True):
                part[rows] = other

    def _on_line(
        self, model: Seq2SeqModel, source: Tensor, target: Tensor, steps: int
    ) -> Explanation:
        """The integral by so many points."""
        points, weights = np.polynomial.legendre.leggauss(steps)  # on [-1, 1]
        by_source = source.new_zeros(*target.shape, source.shape[1], dtype=torch.float32)
        by_prefix = source.new_zeros(*target.shape, target.shape[1], dtype=torch.float32)
        at_once = max(1, ROWS // len(source))
        for first in range(0, steps, at_once):
            shares = torch.from_numpy((points[first : first + at_once] + 1) / 2)
            found = _products(model, source, target, shares, _log_probability, from_unknown=True)
            shares_of_mean = torch.from_numpy(weights[first : first + at_once] / 2)
            by_source = by_source + _weighted(found.source, shares_of_mean)
            by_prefix = by_prefix + _weighted(found.prefix, shares_of_mean)
        with _moved(model, torch.zeros(len(source)), from_unknown=True):
            rest = log_probabilities(model, source, decoder_input(target), target)
        return without_padding(Explanation(by_source, by_prefix, rest), source, target)


def _totals(found: Explanation) -> Tensor:
    """(B, T) what rows add up to."""
    return found.source.sum(dim=2) + found.prefix.sum(dim=2) + found.rest


Score = Callable[[Tensor, Tensor], Tensor]
"""From log-probabilities (B, V) and a token of each row (B, 1) to a score of each (B, 1)."""


def _log_probability(said: Tensor, token: Tensor) -> Tensor:
    return said.gather(1, token)


def _log_odds(said: Tensor, token: Tensor) -> Tensor:
    others = said.scatter(1, token, -torch.inf)  # of 1 - p itself nothing is left where p is near 1
    return said.gather(1, token) - others.logsumexp(dim=1, keepdim=True)


class _Products(NamedTuple):
    """Scores at N points of a batch, and their gradients times embeddings."""

    scores: Tensor  # (N, B, T)
    source: Tensor  # (N, B, T, S)
    prefix: Tensor  # (N, B, T, T)


class _Place(NamedTuple):
    """Embeddings that the model reads, and what their gradients are to be multiplied by."""

    point: Tensor  # (B, T, D)
    factor: Tensor  # (B, T, D)


@torch.enable_grad()
def _products(
    model: Seq2SeqModel,
    source: Tensor,
    target: Tensor,
    shares: Tensor,  # (N,) how far on the line from unknown words to the sentence
    score: Score,
    from_unknown: bool,  # multiply by the whole line; else by the tokens' own embeddings
) -> _Products:
    """Gradients of each target token's score times embeddings."""
    count, batch = len(shares), len(source)
    found: list[list[Tensor]] = []
    # cuDNN has no backward pass of recurrent layers outside of training
    with (
        torch.backends.cudnn.flags(enabled=False),
        _moved(model, shares.repeat_interleave(batch), from_unknown) as places,
    ):
        state = model.start(model.encode(source.repeat(count, 1)), cached=False)
        read, need_weights = decoder_input(target).repeat(count, 1), model.head.needs_weights
        output = model.features(read, state, need_weights=need_weights)
        for t, token in enumerate(target.repeat(count, 1).split(1, dim=1)):
            step = DecoderOutput._make(None if x is None else x[:, t : t + 1] for x in output)
            said = model.head.log_probabilities(step, state.source_tokens)[:, 0]
            scores = score(said, token)
            points = [place.point for place in places]
            gradients = torch.autograd.grad(scores.sum(), points, retain_graph=True)
            products = [
                (gradient * place.factor).sum(dim=2)
                for gradient, place in zip(gradients, places, strict=True)
            ]
            found.append([scores.detach()[:, 0], *products])
    by_token = (torch.stack(parts, dim=1) for parts in zip(*found, strict=True))
    return _Products(*(part.unflatten(0, (count, batch)) for part in by_token))


@contextmanager
def _moved(model: Seq2SeqModel, shares: Tensor, from_unknown: bool) -> Iterator[list[_Place]]:
    """Within the block the model reads embeddings at shares (B,) of the line; yields places."""
    places: list[_Place] = []

    def move(embedding: Embedding, args: tuple[Any, ...], output: Tensor) -> Tensor:
        ids, *positions = args
        with torch.no_grad():
            unknown = embedding.forward(ids.masked_fill(ids != PAD, UNK), *positions)
            share = shares.to(output)[:, None, None]
            point = unknown + share * (output - unknown)
            own = embedding.table(ids) * embedding.scale  # without positions, which are added
            places.append(_Place(point, output - unknown if from_unknown else own))
        return point.requires_grad_(torch.is_grad_enabled())

    source, target = model.source_embedding, model.target_embedding
    with source.register_forward_hook(move), target.register_forward_hook(move):
        yield places


def _weighted(products: Tensor, weights: Tensor) -> Tensor:
    """The weighted sum over points. Args: products: (N, ...); weights: (N,)."""
    return torch.tensordot(weights.to(products), products, dims=1)
