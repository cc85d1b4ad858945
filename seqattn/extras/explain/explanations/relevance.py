"""Attention weights times the gradient of a token's score, propagated through the layers."""

from typing import ClassVar

import torch
from torch import Tensor

from seqattn.analysis.intervene import intervene
from seqattn.extras.explain.explanations.base import Explanation, Method
from seqattn.extras.explain.explanations.decomposition import shares_of
from seqattn.extras.explain.explanations.passes import (
    run_recurrent,
    run_transformer,
    shared_out,
    why_no_cross,
    why_no_layers,
)
from seqattn.models.base import Seq2SeqModel
from seqattn.models.recurrent import Recurrent
from seqattn.models.transformer import Transformer


class Relevance(Method):
    """Gradient x attention by the bi-modal rules, for an encoder-decoder.

    For each target token, the weights of every layer are multiplied by the gradient of its logit,
    clamped at 0 and averaged over heads (eq. 5). Relevances start as the identity; self-attention
    adds to them by eq. 6 and 7, cross-attention by eq. 8 to 10. The identity is subtracted at the
    end, and rows are normalized to sum to 1.

    In a recurrent model the relevance of a source token is the sum of that product over all steps
    up to the token; mixing by its states is ignored.

    Takes a backward pass for each target position.
    """

    name: ClassVar[str] = "relevance"
    cites: ClassVar[str] = "Chefer et al. 2021, arXiv 2103.15679"

    def why_not(self, model: Seq2SeqModel) -> str | None:
        return why_no_cross(model) if isinstance(model, Recurrent) else why_no_layers(model)

    @torch.enable_grad()
    def explain(self, model: Seq2SeqModel, source: Tensor, target: Tensor) -> Explanation:
        if isinstance(model, Recurrent):
            return _of_alignment(model, source, target)
        assert isinstance(model, Transformer)
        with intervene(model, {"*": differentiable}):
            layers = run_transformer(model, source, target)
        weights = [branch.parts.observed for branch in layers.encoder]
        weights += [branch.parts.observed for pair in layers.decoder for branch in pair]
        count = len(layers.encoder)
        rows = []
        for t, maps in enumerate(_maps(layers.logits, target, weights)):
            source_part, prefix = relevances(maps[:count], maps[count:])
            rows.append(torch.cat((source_part[:, t], prefix[:, t]), dim=1))
        shares = shares_of(torch.stack(rows, dim=1))
        return shared_out(target, *shares.split((source.shape[1], target.shape[1]), dim=2))


def differentiable(weights: Tensor, visible: Tensor | None) -> Tensor:
    """Return the same weights, requiring gradients, as an edit, so that the context uses them."""
    return weights if weights.requires_grad else weights.requires_grad_()


def _maps(logits: Tensor, target: Tensor, weights: list[Tensor]) -> list[list[Tensor]]:
    """Return T lists of clamped gradients times weights, averaged over heads (eq. 5)."""
    scores = logits.gather(2, target[..., None]).sum(dim=0)[:, 0]  # (T,)
    maps = []
    for score in scores:
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
    own_maps, cross_maps = decoder[::2], decoder[1::2]
    eye = torch.eye(own_maps[0].shape[1]).to(own_maps[0])
    memory = torch.eye(cross_maps[0].shape[2]).to(eye)
    for one in encoder:
        memory = memory + one @ memory
    prefix, source = eye, torch.zeros_like(cross_maps[0])
    for own, cross in zip(own_maps, cross_maps, strict=True):
        source, prefix = source + own @ source, prefix + own @ prefix
        source = source + _normalized(prefix).mT @ cross @ _normalized(memory)
    return source, prefix - eye


def _normalized(relevance: Tensor) -> Tensor:
    """Normalize the rows of what was added to the identity, and add the identity (eq. 8 and 9)."""
    eye = torch.eye(relevance.shape[-1]).to(relevance)
    return shares_of(relevance - eye) + eye


def _of_alignment(model: Recurrent, source: Tensor, target: Tensor) -> Explanation:
    with intervene(model, {"*": differentiable}):
        aligned = run_recurrent(model, source, target)
    maps = _maps(aligned.logits, target, aligned.calls)
    rows = [torch.cat(calls, dim=1).sum(dim=1) for calls in maps]
    return shared_out(target, shares_of(torch.stack(rows, dim=1)))
