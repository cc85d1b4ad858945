"""What the layers of a stack and its position scheme must agree on."""

from collections.abc import Iterator

from torch import nn

from seqattn.attention.base import Attention
from seqattn.errors import UserError
from seqattn.positions.base import Position


def first_heads(layers: nn.ModuleList) -> int:
    """Query heads of the first layer's self-attention, which positions are made for."""
    return next((attention.num_heads for attention in self_attentions(layers)), 1)


def self_attentions(layers: nn.ModuleList) -> Iterator[Attention]:
    """The self-attention of each layer, from the first."""
    for layer in layers:
        assert isinstance(layer.self_attention, Attention)
        yield layer.self_attention


def check_position(position: Position, layers: nn.ModuleList) -> None:
    """Refuses a position scheme that some layer's self-attention cannot take.

    Raises:
        UserError: naming the hook that an attention lacks, or layers with other numbers of heads
            where the scheme acts on heads.
    """
    heads = {attention.num_heads for attention in self_attentions(layers)}
    if len(heads) > 1 and position.hooks - {"embed"}:
        counts = " and ".join(map(str, sorted(heads)))
        raise UserError(
            f"{type(position).__name__} is made for one number of heads and the layers have "
            f"{counts}; give them the same num_heads, or use position=sinusoidal, learned or none"
        )
    for attention in self_attentions(layers):
        missing = position.hooks - attention.abilities.hooks - {"embed"}
        if missing:
            raise UserError(
                f"{attention.name} cannot use {type(position).__name__}, which acts through "
                f"{' and '.join(sorted(missing))}; it takes schemes that act through "
                f"{', '.join(sorted(attention.abilities.hooks | {'embed'}))}"
            )


def shortest(position: Position, layers: nn.ModuleList) -> int | None:
    """The longest sequence that the positions and every self-attention of a stack can take."""
    limits = [position.max_length, *(own.max_length for own in self_attentions(layers))]
    return min((limit for limit in limits if limit is not None), default=None)
