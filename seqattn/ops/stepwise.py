"""A linear map that is applied step by step, and learns from all steps at once."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from seqattn.ops.cpu import onednn_multiplies
from seqattn.ops.linear_layer import linear
from seqattn.ops.second_derivatives import refuse


class StepLinear:
    """y_t = base_t + W_1 x_t + W_2 z_t + ..., whose inputs are known one step at a time.

    A loop's gradient of a weight is a sum over steps of small products. Here the steps see constant
    weights, and one product over all steps makes each weight's gradient in the end.

    Args:
        base: (B, T, O) what is known beforehand.
        weights: (O, I) each, none or several.
    """

    def __init__(self, base: Tensor, weights: Sequence[Tensor]) -> None:
        self.inputs: list[list[Tensor]] = [[] for _ in weights]
        if torch.is_grad_enabled() and weights:
            base = _Deferred.apply(base, self.inputs, *weights)  # type: ignore[no-untyped-call]
        self.bases = base.unbind(dim=1)
        self.weights = [weight.detach() for weight in weights]

    def __call__(self, t: int, inputs: Sequence[Tensor]) -> Tensor:
        """Step t, each once and in order. Args: inputs: (B, I), one for each weight."""
        out = self.bases[t]
        for x, weight, seen in zip(inputs, self.weights, self.inputs, strict=True):
            quick = onednn_multiplies(x)
            out = out + linear(x, weight) if quick else torch.addmm(out, x, weight.T)
            seen.append(x.detach())
        return out


class _Deferred(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, base: Tensor, inputs: list[list[Tensor]], *weights: Tensor) -> Tensor:
        ctx.inputs = inputs
        ctx.dtypes = [weight.dtype for weight in weights]
        return base.view_as(base)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        refuse("what is worked out step by step has no second derivatives")
        gradient = gradients[0]
        flat = gradient.flatten(0, 1).T  # (B, T, O) -> (O, B*T)
        found = [
            linear(flat, torch.stack(seen, dim=1).flatten(0, 1).to(flat.dtype).T).to(dtype)
            for seen, dtype in zip(ctx.inputs, ctx.dtypes, strict=True)
        ]
        return gradient, None, *found
