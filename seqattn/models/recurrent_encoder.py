"""The recurrent encoder, and the bridge from its last states to the decoder's first."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqattn.attention.masks import real_first
from seqattn.errors import UserError
from seqattn.layers.recurrent import Hidden, StepDropout, cell_class, full_precision_on_cpu


class Encoded(NamedTuple):
    """Outputs (B, S, D), zeros on padding, and the last states (B, parts, layers * D)."""

    outputs: Tensor
    last: Tensor


class RecurrentEncoder(nn.Module):
    """LSTM or GRU layers over packed sequences: padding, on any side, costs and moves nothing.

    Time S * D^2 a layer; S steps, one after the other.

    Args:
        cell: lstm or gru.
        input_dim: width of the embeddings.
        dim: width D of the outputs, both directions together.
        layers: depth, at least 1.
        bidirectional: half of the width reads backwards.
        dropout: between layers.

    Raises:
        UserError: for an odd width in two directions.
    """

    def __init__(
        self,
        cell: str,
        input_dim: int,
        dim: int,
        layers: int,
        bidirectional: bool,
        dropout: StepDropout,
    ) -> None:
        super().__init__()
        if bidirectional and dim % 2:
            raise UserError(f"model.encoder_dim must be even in two directions, got {dim}")
        make, width = cell_class(cell), dim // 2 if bidirectional else dim
        self.layers = nn.ModuleList(
            make(input_dim if n == 0 else dim, width, batch_first=True, bidirectional=bidirectional)
            for n in range(layers)
        )
        self.parts = 2 if cell == "lstm" else 1
        self.dropout = dropout

    def forward(self, x: Tensor, real: Tensor) -> Encoded:
        """Reads embeddings (B, S, I), of which `real` (B, S) are tokens."""
        order = real_first(real)
        if order is not None:
            x = x.gather(1, order[..., None].expand_as(x))
        counts = real.sum(dim=1)
        lengths = counts.clamp(min=1).cpu()  # packing refuses empty rows
        last = []
        for number, layer in enumerate(self.layers):
            x = x if number == 0 else self.dropout(x)
            with full_precision_on_cpu(x) as x:
                packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
                packed, end = layer(packed)
            x, _ = pad_packed_sequence(packed, batch_first=True, total_length=real.shape[1])
            ends = end if self.parts == 2 else (end,)
            # (directions, B, D/directions) -> (B, parts, D)
            last.append(torch.stack([part.transpose(0, 1).flatten(1) for part in ends], dim=1))
        states = torch.cat(last, dim=2)
        if bool((counts == 0).any()):
            x = x.masked_fill((counts == 0)[:, None, None], 0.0)
            states = states.masked_fill((counts == 0)[:, None, None], 0.0)
        if order is not None:
            x = x.gather(1, order.argsort(dim=1)[..., None].expand_as(x))
        return Encoded(x, states)


class Bridge(nn.Module):
    """The decoder's first states from the encoder's last ones, of all layers: tanh(W h + b).

    As Bahdanau et al. 2015 (arXiv 1409.0473, appendix A.2.2), with both directions; an LSTM's
    cells have a map of their own, without the tanh.

    Args:
        memory_dim: width of an encoder's last state, all layers together.
        dim: width of a decoder's state.
        layers: the decoder's depth.
        parts: of a state, 2 for an LSTM.
    """

    def __init__(self, memory_dim: int, dim: int, layers: int, parts: int) -> None:
        super().__init__()
        self.layers = layers
        self.maps = nn.ModuleList(nn.Linear(memory_dim, layers * dim) for _ in range(parts))

    def forward(self, last: Tensor) -> list[Hidden]:
        """The last states (B, parts, layers * D) of the encoder -> a state for each layer."""
        made = [part(last[:, number]) for number, part in enumerate(self.maps)]
        made[0] = made[0].tanh()
        return list(zip(*(part.chunk(self.layers, dim=1) for part in made), strict=True))
