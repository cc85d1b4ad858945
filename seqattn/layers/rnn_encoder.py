"""Unidirectional or bidirectional LSTM or GRU layers over padded sequences."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from seqattn.attention.masks import real_first
from seqattn.layers.rnn_layer import CELLS, Cell, StepDropout
from seqattn.ops.precision import full_precision_on_cpu


class Encoded(NamedTuple):
    """Outputs (B, S, D), zeros on padding, and the final outputs of each layer (B, layers * D)."""

    outputs: Tensor
    last: Tensor


class RecurrentEncoder(nn.Module):
    """Unidirectional or bidirectional layers (Graves and Schmidhuber 2005, doi
    10.1016/j.neunet.2005.06.042); padding on either side has no effect.

    Each direction is one fused call over the padded rows, the backward one over reversed rows: on
    one CPU thread, training on 80 rows of about 100 tokens takes 0.3 times as long as with packed
    sequences. Time S * D^2 per layer, padding included; S sequential steps.

    Args:
        cell: lstm or gru.
        input_dim: width I of the inputs.
        dim: width D of the outputs, both directions together; even with two.
        layers: depth, at least 1.
        dropout: between layers.
        bidirectional: add a backward direction, which takes half of the width.
    """

    def __init__(
        self,
        cell: Cell,
        input_dim: int,
        dim: int,
        layers: int,
        dropout: StepDropout,
        bidirectional: bool = True,
    ) -> None:
        super().__init__()
        make, direction_dim = CELLS[cell], dim // 2 if bidirectional else dim
        widths = [input_dim, *[dim] * (layers - 1)]
        self.ahead = nn.ModuleList(make(width, direction_dim, batch_first=True) for width in widths)
        self.back = nn.ModuleList(
            make(width, direction_dim, batch_first=True) for width in widths if bidirectional
        )
        self.dropout = dropout

    def forward(self, x: Tensor, real: Tensor) -> Encoded:
        """Encode x (B, S, I), with `real` (B, S) True on tokens."""
        order = real_first(real)
        if order is not None:
            x = _at(x, order)
        steps = torch.arange(real.shape[1], device=real.device)
        tokens_after = real.sum(dim=1, keepdim=True) - 1 - steps  # (B, S) tokens after each
        reversal = torch.where(tokens_after >= 0, tokens_after, steps)
        ends = tokens_after[:, :1].clamp(min=0)  # (B, 1) the last token of each row
        last = []
        for number, ahead in enumerate(self.ahead):
            x = self.dropout(x) if number else x
            forth = _read(ahead, x)
            last.append(_at(forth, ends)[:, 0])
            if self.back:
                back = _at(_read(self.back[number], _at(x, reversal)), reversal)
                last.append(back[:, 0])
                forth = torch.cat((forth, back), dim=2)
            x = forth
        states = torch.cat(last, dim=1).masked_fill(tokens_after[:, :1] < 0, 0.0)
        x = x.masked_fill((tokens_after < 0)[..., None], 0.0)
        if order is not None:
            x = _at(x, order.argsort(dim=1))
        return Encoded(x, states)


def _at(x: Tensor, positions: Tensor) -> Tensor:
    """Gather x (B, S, D) at positions (B, L): (B, L, D)."""
    return x.take_along_dim(positions[..., None], dim=1)


def _read(layer: nn.Module, x: Tensor) -> Tensor:
    with full_precision_on_cpu(x) as wide:
        out: Tensor = layer(wide)[0]
    return out
