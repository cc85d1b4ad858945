"""Who takes part in the attention benchmark."""

from collections.abc import Callable
from typing import NamedTuple

from seqattn.attention.base import Attention
from seqattn.positions.base import Position


class Contestant(NamedTuple):
    """A named attention with its positions, made for a length."""

    name: str
    make: Callable[[int], tuple[Attention, Position]]
    """From a length in tokens, which sizes such as strides may follow."""
