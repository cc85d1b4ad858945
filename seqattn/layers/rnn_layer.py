"""One layer of an LSTM or GRU, over a complete sequence at once or step by step."""

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Le
from torch import Tensor, nn

from seqattn import ops
from seqattn.ops.layers import Dropout
from seqattn.ops.precision import full_precision_on_cpu

Cell = Literal["lstm", "gru"]
CELLS: dict[Cell, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}
Layers = Annotated[int, Ge(1), Le(1_000)]
"""Depth of a recurrent stack."""
Hidden = tuple[Tensor, ...]
"""A layer's state, parts of (B, D): output and cell for an LSTM, output for a GRU."""


def parts_of(cell: Cell) -> int:
    """Return the number of parts of a state: 2 for an LSTM (output and cell), 1 for a GRU."""
    return 2 if cell == "lstm" else 1


class RecurrentLayer(nn.Module):
    """One LSTM layer (Hochreiter and Schmidhuber 1997) or GRU layer (Cho et al. 2014, 1406.1078).

    `forward` and `Steps` compute the same function: in one fused call, or step by step if an input
    depends on the previous step. Time T * D * (I + E + D).

    Args:
        cell: lstm or gru.
        input_dim: width I of the inputs known beforehand.
        extra_dim: width E of the inputs known only at each step, such as a context; 0 for none.
        dim: width D of the state.
    """

    def __init__(self, cell: Cell, input_dim: int, extra_dim: int, dim: int) -> None:
        super().__init__()
        self.parts = parts_of(cell)
        self.input_dim, self.extra_dim = input_dim, extra_dim
        self.rnn = CELLS[cell](input_dim + extra_dim, dim, batch_first=True)

    def forward(self, x: Tensor, hidden: Hidden) -> tuple[Tensor, Hidden]:
        """Return outputs (B, T, D) and the state after inputs x (B, T, I + E)."""
        first = tuple(part[None] for part in hidden)
        with full_precision_on_cpu(x) as x:
            first = tuple(part.to(x.dtype) for part in first)
            out, last = self.rnn(x, first if self.parts == 2 else first[0])
        last = last if self.parts == 2 else (last,)
        return out, tuple(part[0] for part in last)


class Steps:
    """Step-by-step evaluation of a layer.

    Args:
        layer: the layer with the weights.
        x: (B, T, I) the inputs known beforehand; None if each step brings its own.
        rows: B.
        count: T.
    """

    def __init__(self, layer: RecurrentLayer, x: Tensor | None, rows: int, count: int) -> None:
        parameters = dict(layer.rnn.named_parameters())
        enter, hidden_weight = parameters["weight_ih_l0"], parameters["weight_hh_l0"]
        bias, hidden_bias = parameters["bias_ih_l0"], parameters["bias_hh_l0"]
        input_weight, extra = enter[:, : layer.input_dim], enter[:, layer.input_dim :]
        self.weights = [input_weight] if x is None else []
        self.weights += [extra] if layer.extra_dim else []
        total = bias + hidden_bias if layer.parts == 2 else bias
        base = total.expand(rows, count, -1) if x is None else ops.linear(x, input_weight, total)
        self.bases, self.hidden_weight = base.unbind(dim=1), hidden_weight
        self.hidden_bias = None if layer.parts == 2 else hidden_bias

    def __call__(self, t: int, inputs: Sequence[Tensor], hidden: Hidden) -> Hidden:
        """Return the state after step t.

        Args:
            t: the step; each is computed once, in order.
            inputs: (B, I) if not known beforehand, and (B, E) if E is not 0.
            hidden: the previous state, whose first part is the output.
        """
        gates = self.bases[t]
        for x, weight in zip(inputs, self.weights, strict=True):
            gates = ops.add_linear(gates, x, weight)
        if self.hidden_bias is None:
            return _lstm(ops.add_linear(gates, hidden[0], self.hidden_weight), hidden[1])
        return (
            _gru(gates, ops.linear(hidden[0], self.hidden_weight, self.hidden_bias), hidden[0]),
        )


def _lstm(gates: Tensor, cell: Tensor) -> Hidden:
    enter, forget, new, leave = gates.chunk(4, dim=1)
    cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
    return leave.sigmoid() * cell.tanh(), cell


def _gru(gates: Tensor, recurrent: Tensor, hidden: Tensor) -> Tensor:
    dim = hidden.shape[1]
    reset, update = (gates[:, : 2 * dim] + recurrent[:, : 2 * dim]).sigmoid().chunk(2, dim=1)
    new = (gates[:, 2 * dim :] + reset * recurrent[:, 2 * dim :]).tanh()
    return new + update * (hidden - new)


class StepDropout(nn.Module):
    """Dropout on a sequence: a mask for every step, or one mask for all steps of a sentence.

    The second is variational dropout (Gal and Ghahramani 2016, arXiv 1512.05287) on the inputs and
    outputs of layers; recurrent connections are not dropped, as fused layers do not support it.

    Args:
        p: share dropped in training.
        variational: use one mask for all steps.
    """

    def __init__(self, p: float, variational: bool) -> None:
        super().__init__()
        self.drop = Dropout(p)
        self.variational = variational

    def forward(self, x: Tensor) -> Tensor:
        """Apply dropout, (B, T, D) -> (B, T, D)."""
        if not self.variational or not self.training:
            out: Tensor = self.drop(x)
            return out
        return x * self.drop(torch.ones_like(x[:, :1]))

    def factors(self, rows: int, steps: int, dim: int, like: Tensor) -> Tensor | None:
        """Draw the dropout factors of each step, (B, T, D); None without dropout."""
        if not self.training or self.drop.p == 0:
            return None
        return self(like.new_ones(rows, steps, dim))
