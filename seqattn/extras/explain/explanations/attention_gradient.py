"""Magnitude of cross-attention weights times their gradients."""

from typing import ClassVar

import torch
from torch import Tensor

from seqattn.analysis.capture import capture
from seqattn.analysis.intervene import intervene
from seqattn.extras.explain.explanations.base import Contrasting, Explanation
from seqattn.extras.explain.explanations.decomposition import shares_of
from seqattn.extras.explain.explanations.gradients import log_odds, log_probability
from seqattn.extras.explain.explanations.passes import shared_out, why_no_cross
from seqattn.extras.explain.explanations.predictions import decoder_input, without_padding
from seqattn.extras.explain.explanations.relevance import differentiable
from seqattn.models.base import Seq2SeqModel


class AttentionXGradient(Contrasting):
    """|A dF/dA| for all cross-attention weights A, summed over queries, heads and decoder layers.

    Serrano and Smith rank weights by their product with the gradient. Here its magnitude counts, so
    weights that speak against the token do too; Barkan et al. 2021 (Grad-SAM, arXiv 2204.11073) and
    `relevance` count the positive part only. F is the log-odds of the target token: the loss has
    the same gradient up to a factor, and rows are normalized to sum to 1. Unlike `relevance`, the
    weights are not followed through the layers. `prefix` is 0.

    For the difference of two tokens' log-probabilities, A dF/dA is summed with its sign and not
    normalized; `rest` is 0.

    Takes a backward pass for each target position.
    """

    name: ClassVar[str] = "attention_x_gradient"
    cites: ClassVar[str] = "Serrano and Smith 2019, arXiv 1906.03731"

    def why_not(self, model: Seq2SeqModel) -> str | None:
        return why_no_cross(model)

    @torch.enable_grad()
    def explain(
        self, model: Seq2SeqModel, source: Tensor, target: Tensor, instead: Tensor | None = None
    ) -> Explanation:
        with intervene(model, {"*cross_attention": differentiable}), capture(model) as maps:
            state = model.start(model.encode(source), cached=False)
            said = model.log_probabilities(decoder_input(target), state).log_probabilities
        weights = [
            call
            for name, calls in maps.items()
            if name.endswith("cross_attention")
            for call in calls
        ]
        rows = []
        for t, (step, token) in enumerate(zip(said.unbind(1), target.split(1, 1), strict=True)):
            if instead is None:
                score = log_odds(step, token)
            else:
                alternative = instead[:, t : t + 1]
                score = log_probability(step, token) - log_probability(step, alternative)
            gradients = torch.autograd.grad(
                score.sum(), weights, retain_graph=True, materialize_grads=True
            )
            products = [
                part.detach() * gradient for part, gradient in zip(weights, gradients, strict=True)
            ]
            if instead is None:
                products = [product.abs() for product in products]
            sums = [product.sum(dim=(1, 2)) for product in products]  # (B, H, T', S) -> (B, S)
            rows.append(torch.stack(sums).sum(dim=0))
        amounts = torch.stack(rows, dim=1)
        if instead is None:
            return shared_out(target, shares_of(amounts))
        prefix = amounts.new_zeros(*target.shape, target.shape[1])
        return without_padding(Explanation(amounts, prefix, prefix[..., 0]), source, target)
