"""Explanation methods based on gradients at the embeddings."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from seqattn.extras.explain.explanations.base import Contrasting, Explanation
from seqattn.extras.explain.explanations.predictions import (
    decoder_input,
    without_padding,
)
from seqattn.layers.embedding import Embedding
from seqattn.models.base import Seq2SeqModel
from seqattn.models.head import DecoderOutput
from seqattn.tokens import PAD, UNK


class InputXGradient(Contrasting):
    """Embedding of each token times its gradient: sum over d of x_d dF/dx_d.

    F is log(p / (1 - p)), the log-odds of a target token, and x the embedding before positions are
    added. The log-probability has the same gradient up to a factor, which vanishes if the model is
    certain. `rest` is the residual of the linear approximation, so a row adds up to F. Of two
    tokens, F is the difference of the log-probabilities. Takes one backward pass for each target
    token.
    """

    name: ClassVar[str] = "input_x_gradient"
    cites: ClassVar[str] = "Shrikumar et al. 2016, arXiv 1605.01713"
    signed: ClassVar[bool] = True

    def explain(
        self, model: Seq2SeqModel, source: Tensor, target: Tensor, instead: Tensor | None = None
    ) -> Explanation:
        score = log_odds if instead is None else log_probability
        products = gradient_products(
            model, source, target, torch.ones(len(source)), score, False, instead
        )
        rest = products.scores - products.source.sum(dim=2) - products.prefix.sum(dim=2)
        return without_padding(Explanation(products.source, products.prefix, rest), source, target)


Score = Callable[[Tensor, Tensor], Tensor]
"""Function of log-probabilities (B, V) and a token per row (B, 1) that returns scores (B, 1)."""


def log_probability(log_probabilities: Tensor, token: Tensor) -> Tensor:
    """Return the log-probability of the tokens, as a `Score`."""
    return log_probabilities.gather(1, token)


def log_odds(log_probabilities: Tensor, token: Tensor) -> Tensor:
    """Return log(p / (1 - p)) of the tokens, as a `Score`."""
    others = log_probabilities.scatter(1, token, -torch.inf)  # 1 - p loses all precision near p = 1
    return log_probabilities.gather(1, token) - others.logsumexp(dim=1, keepdim=True)


class Products(NamedTuple):
    """Scores at a point of each line, and their gradients times embeddings."""

    scores: Tensor  # (B, T)
    source: Tensor  # (B, T, S)
    prefix: Tensor  # (B, T, T)


class _LinePoint(NamedTuple):
    """Embeddings that the model reads, and the multipliers of their gradients."""

    point: Tensor  # (B, T, D)
    factor: Tensor  # (B, T, D)


@torch.enable_grad()
def gradient_products(
    model: Seq2SeqModel,
    source: Tensor,
    target: Tensor,
    shares: Tensor,
    score: Score,
    from_unknown: bool,
    instead: Tensor | None = None,
) -> Products:
    """Return gradients of each target token's score times embeddings.

    Args:
        model: in eval mode.
        source, target: (B, S) and (B, T).
        shares: (B,) position of each sentence on the line from unknown words to itself, 0 to 1.
        score: score of a target token.
        from_unknown: multiply by the difference from the unknown word, else by the embedding.
        instead: (B, T) tokens whose scores are subtracted; None for none.
    """
    rows: list[list[Tensor]] = []
    # cuDNN has no backward pass of recurrent layers in eval mode
    with (
        torch.backends.cudnn.flags(enabled=False),
        moved_embeddings(model, shares, from_unknown) as places,
    ):
        state = model.start(model.encode(source), cached=False)
        need_weights = model.head.needs_weights
        output = model.features(decoder_input(target), state, need_weights=need_weights)
        for t, token in enumerate(target.split(1, dim=1)):
            step = DecoderOutput._make(None if x is None else x[:, t : t + 1] for x in output)
            log_probabilities = model.head.log_probabilities(step, state.source_tokens)[:, 0]
            scores = score(log_probabilities, token)
            if instead is not None:
                scores = scores - score(log_probabilities, instead[:, t : t + 1])
            points = [place.point for place in places]
            gradients = torch.autograd.grad(scores.sum(), points, retain_graph=True)
            products = [
                (gradient * place.factor).sum(dim=2)
                for gradient, place in zip(gradients, places, strict=True)
            ]
            rows.append([scores.detach()[:, 0], *products])
    return Products(*(torch.stack(parts, dim=1) for parts in zip(*rows, strict=True)))


@contextmanager
def moved_embeddings(
    model: Seq2SeqModel, shares: Tensor, from_unknown: bool
) -> Iterator[list[_LinePoint]]:
    """Make the model read embeddings at shares (B,) of the line within the block; yield places."""
    points: list[_LinePoint] = []

    def move(embedding: Embedding, args: tuple[Any, ...], output: Tensor) -> Tensor:
        ids, *positions = args
        with torch.no_grad():
            unknown = embedding.forward(ids.masked_fill(ids != PAD, UNK), *positions)
            share = shares.to(output)[:, None, None]
            point = unknown + share * (output - unknown)
            embedded = output  # without a norm, before positions are added
            if embedding.norm is None:
                embedded = embedding.table(ids) * embedding.scale
            points.append(_LinePoint(point, output - unknown if from_unknown else embedded))
        return point.requires_grad_(torch.is_grad_enabled())

    source, target = model.source_embedding, model.target_embedding
    with source.register_forward_hook(move), target.register_forward_hook(move):
        yield points
