"""Base of mixers that read a text token by token: states, padding, both directions."""

from abc import abstractmethod

import torch
from torch import Tensor, nn

from seqattn.attention.base import Abilities, Mixer
from seqattn.attention.cache import Cache
from seqattn.attention.fixed_cache import FixableCache
from seqattn.attention.masks import Mask, real_first
from seqattn.positions.base import Position

States = dict[str, Tensor]
"""States after the tokens so far, each (B*K, ...), by name; empty before the first token."""


class StateCache(FixableCache):
    """The states of a mixer; their size does not depend on the number of tokens."""

    def __init__(self, beams: int = 1) -> None:
        super().__init__(beams)
        self.states: States = {}

    def advance(self, states: States) -> None:
        """Replace the states by those after more tokens."""
        if self.token_index is None:
            self.states = states
            return
        for name, state in self.states.items():
            state.copy_(states[name])
        self.states = self.states or {name: state.clone() for name, state in states.items()}

    def select(self, rows: Tensor) -> None:
        self.states = {name: state.index_select(0, rows) for name, state in self.states.items()}

    def tensors(self) -> list[Tensor]:
        return [*self.states.values()]


class RecurrentMixer(Mixer):
    """A mixer whose outputs depend on earlier tokens by states alone.

    In a decoder it reads from left to right. In an encoder, half of its heads or channels read from
    right to left, with the same parameters and in the same time; the layers above join both halves.
    Two mixers, one for each direction, would double both.

    A subclass implements `read`. Padding is moved behind the tokens before that and back after it,
    so that it lies between no two tokens; it must change no state.
    """

    abilities = Abilities(causal=True, incremental=True, hooks=frozenset())

    @abstractmethod
    def read(self, x: Tensor, real: Tensor | None, both_ways: bool, states: States) -> Tensor:
        """Mix tokens with earlier ones, and update `states` in place.

        Args:
            x: (B*K, T, D).
            real: (B*K, T) bool, True for tokens, which come before all padding; None if all are.
            both_ways: half of the heads or channels read from right to left; `states` are then
                empty, and not used again.
            states: as in `StateCache`.

        Returns:
            (B*K, T, D).
        """

    def mix(self, x: Tensor, mask: Mask, position: Position, cache: Cache | None = None) -> Tensor:
        assert cache is None or isinstance(cache, StateCache)
        assert mask.extra is None, "custom masks are not supported"
        states = {} if cache is None else dict(cache.states)
        real, order = mask.real, None
        if real is not None:
            real = real[:, -x.shape[1] :]
            real = real.repeat_interleave(len(x) // len(real), dim=0)  # (B, T) -> (B*K, T)
            order = real_first(real)
            if order is not None:
                x, real = rows_of(x, order), real.gather(1, order)
        out = self.read(x, real, not mask.causal, states)
        if cache is not None:
            cache.advance(states)
        return out if order is None else rows_of(out, order.argsort(dim=1))

    def make_cache(self, beams: int) -> Cache:
        return StateCache(beams)


def rows_of(x: Tensor, positions: Tensor) -> Tensor:
    """Return x (B, T, D) at places (B, N). Compiled, `take_along_dim` would serve one T only."""
    return x.gather(1, positions[..., None].expand(-1, -1, x.shape[2]))


def half_reversed(x: Tensor, dim: int = 2) -> Tensor:
    """Reverse the time of x (B, T, ...) in the second half of the axis `dim`; its own inverse."""
    first, second = x.tensor_split(2, dim)
    return torch.cat((first, second.flip(1)), dim)


def without_padding(x: Tensor, real: Tensor | None, value: float = 0.0) -> Tensor:
    """Return x (B, T, ...) with `value` at padding. Args: real: (B, T) bool; None for none."""
    if real is None:
        return x
    return x.masked_fill(~real.view(*real.shape, *(1,) * (x.dim() - 2)), value)


class ShortConvolution(nn.Module):
    """Causal convolution of each channel by itself: y_t = bias + sum_k w_k x_{t-k}, k < `width`.

    Args:
        channels: C.
        width: tokens that an output depends on.
        bias: add a bias.
    """

    def __init__(self, channels: int, width: int, bias: bool = True) -> None:
        super().__init__()
        bound = width**-0.5
        self.weight = nn.Parameter(torch.empty(channels, 1, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(channels)) if bias else None

    def forward(self, x: Tensor, real: Tensor | None, past: Tensor | None) -> tuple[Tensor, Tensor]:
        """Convolve tokens x (B, T, C), of which those not `real` come last.

        Args:
            past: (B, width - 1, C) inputs before x, as returned by the last call; None for zeros.

        Returns:
            (B, T, C), and the last width - 1 inputs that are tokens.
        """
        width = self.weight.shape[2]
        if past is None:
            past = x.new_zeros(len(x), width - 1, x.shape[2])
        inputs = torch.cat((past, x), dim=1)
        out = inputs[:, : x.shape[1]] * self.weight[:, 0, 0]
        for shift in range(1, width):  # faster than a grouped convolution on a CPU
            out = out.addcmul(inputs[:, shift : shift + x.shape[1]], self.weight[:, 0, shift])
        out = out if self.bias is None else out + self.bias
        if real is None:
            return out, inputs[:, x.shape[1] :]
        last = real.sum(dim=1)[:, None] + torch.arange(width - 1, device=x.device)  # (B, width - 1)
        return out, rows_of(inputs, last)
