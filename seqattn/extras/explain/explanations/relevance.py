"""Attention weights times the gradient of a token's score, propagated through the layers."""

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from seqattn.analysis.intervene import intervene
from seqattn.extras.explain.explanations.base import Contrasting, Explanation
from seqattn.extras.explain.explanations.decomposition import shares_of
from seqattn.extras.explain.explanations.passes import (
    run_recurrent,
    run_transformer,
    shared_out,
    why_no_cross,
    why_no_layers,
)
from seqattn.extras.explain.explanations.predictions import without_padding
from seqattn.models.base import Seq2SeqModel
from seqattn.models.recurrent import Recurrent
from seqattn.models.transformer import Transformer


class Relevance(Contrasting):
    """Gradient x attention by the bi-modal rules, for an encoder-decoder.

    For each target token, the weights of every layer are multiplied by the gradient of its logit,
    clamped at 0 and averaged over heads (eq. 5). Relevances start as the identity; self-attention
    adds to them by eq. 6 and 7, cross-attention by eq. 8 to 10. The identity is subtracted at the
    end, and rows are normalized to sum to 1.

    In a recurrent model the relevance of a source token is the sum of that product over all steps
    up to the token; mixing by its states is ignored.

    Of two tokens, what speaks for the difference of their logits, less what speaks against it,
    each by these rules but not normalized; `rest` is 0.

    Takes a backward pass for each target position, two for two tokens.
    """

    name: ClassVar[str] = "relevance"
    cites: ClassVar[str] = "Chefer et al. 2021, arXiv 2103.15679"

    def why_not(self, model: Seq2SeqModel) -> str | None:
        return why_no_cross(model) if isinstance(model, Recurrent) else why_no_layers(model)

    @torch.enable_grad()
    def explain(
        self, model: Seq2SeqModel, source: Tensor, target: Tensor, instead: Tensor | None = None
    ) -> Explanation:
        run = _alignment if isinstance(model, Recurrent) else _layers
        logits, weights, follow = run(model, source, target)
        scores = logits.gather(2, target[..., None])[..., 0]
        if instead is not None:
            scores = scores - logits.gather(2, instead[..., None])[..., 0]

        def amounts(scores: Tensor) -> Tensor:
            maps = enumerate(_maps(scores, weights))
            return torch.stack([follow(t, layer_maps) for t, layer_maps in maps], dim=1)

        sides = (source.shape[1], target.shape[1])
        if instead is None:
            return shared_out(target, *shares_of(amounts(scores)).split(sides, dim=2))
        by_source, prefix = (amounts(scores) - amounts(-scores)).split(sides, dim=2)
        return without_padding(
            Explanation(by_source, prefix, torch.zeros_like(prefix[..., 0])), source, target
        )


Follow = Callable[[int, list[Tensor]], Tensor]
"""Function of a target position and its maps that returns relevances (B, S+T)."""


def _layers(
    model: Seq2SeqModel, source: Tensor, target: Tensor
) -> tuple[Tensor, list[Tensor], Follow]:
    """Return logits (B, T, V), weights, and how to follow maps of those weights."""
    assert isinstance(model, Transformer)
    with intervene(model, {"*": differentiable}):
        layers = run_transformer(model, source, target)
    encoder = [branch.parts.observed for branch in layers.encoder]
    decoder = [branch.parts.observed for pair in layers.decoder for branch in pair]

    def follow(t: int, maps: list[Tensor]) -> Tensor:
        read, prefix = relevances(maps[: len(encoder)], maps[len(encoder) :])
        return torch.cat((read[:, t], prefix[:, t]), dim=1)

    return layers.logits, encoder + decoder, follow


def _alignment(
    model: Seq2SeqModel, source: Tensor, target: Tensor
) -> tuple[Tensor, list[Tensor], Follow]:
    """Return the same of a recurrent model."""
    assert isinstance(model, Recurrent)
    with intervene(model, {"*": differentiable}):
        aligned = run_recurrent(model, source, target)

    def follow(t: int, maps: list[Tensor]) -> Tensor:
        read = torch.cat(maps, dim=1).sum(dim=1)
        return torch.cat((read, read.new_zeros(target.shape)), dim=1)

    return aligned.logits, aligned.calls, follow


def differentiable(weights: Tensor, visible: Tensor | None) -> Tensor:
    """Return the same weights, requiring gradients, as an edit, so that the context uses them."""
    return weights if weights.requires_grad else weights.requires_grad_()


def _maps(scores: Tensor, weights: list[Tensor]) -> list[list[Tensor]]:
    """Return T lists of clamped gradients of scores (B, T) times weights, head means (eq. 5)."""
    maps = []
    for score in scores.sum(dim=0):
        gradients = torch.autograd.grad(score, weights, retain_graph=True, materialize_grads=True)
        pairs = zip(gradients, weights, strict=True)  # (B, H, T', S')
        maps.append([(g * part.detach()).clamp(min=0).mean(dim=1) for g, part in pairs])
    return maps


def relevances(encoder: list[Tensor], decoder: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return relevances of source (B, T, S) and target tokens (B, T, T) from one output's maps.

    Args:
        encoder: (B, S, S) for each layer.
        decoder: (B, T, T) of self-attention and (B, T, S) of cross-attention, alternating by layer.
    """
    self_maps, cross_maps = decoder[::2], decoder[1::2]
    eye = torch.eye(self_maps[0].shape[1]).to(self_maps[0])
    memory = torch.eye(cross_maps[0].shape[2]).to(eye)
    for weights in encoder:
        memory = memory + weights @ memory
    prefix, source = eye, torch.zeros_like(cross_maps[0])
    for self_map, cross in zip(self_maps, cross_maps, strict=True):
        source, prefix = source + self_map @ source, prefix + self_map @ prefix
        source = source + _normalized(prefix).mT @ cross @ _normalized(memory)
    return source, prefix - eye


def _normalized(relevance: Tensor) -> Tensor:
    """Normalize the rows of what was added to the identity, and add the identity (eq. 8 and 9)."""
    eye = torch.eye(relevance.shape[-1]).to(relevance)
    return shares_of(relevance - eye) + eye
