"""Capture of attention weights in any call."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from seqattn.attention.alignment import Alignment
from seqattn.attention.base import Attention, Mixer
from seqattn.attention.kernels.base import Kernel
from seqattn.errors import UserError


class Maps(dict[str, list[Tensor]]):
    """Attention weights by module name, such as `decoder.layers.0.cross_attention`.

    Each value lists the calls in order, each (B, H, T, S): rows are queries, columns keys, exactly
    0 on hidden keys. Decoding with several beams folds them into T, and keys are then the slots of
    the cache. A recurrent decoder that runs step by step adds one call for a complete target, or,
    with gradients or edits, one call for each step, each (B, 1, K, S).
    """

    without: list[str]
    """Names of attentions and other mixers without weights over keys."""

    def __missing__(self, name: str) -> list[Tensor]:
        if name in self.without:
            raise UserError(f"{name} has no attention weights; its mechanism computes none")
        raise KeyError(name)


@contextmanager
def capture(model: nn.Module, gradients: bool = False) -> Iterator[Maps]:
    """Record the weights of every attention in `model` within the block.

    Outputs still come from the fast path; weights are computed separately. Capturing thus changes
    no output, but costs the time and memory of materializing the weights.

    Args:
        model: any module that contains attentions.
        gradients: compute the context from the recorded weights, so that `torch.autograd.grad`
            with respect to them works; outputs then differ by rounding.

    Yields:
        The maps, filled call by call.
    """
    parts = dict(makers(model))
    observed = {name: part for name, part in parts.items() if has_weights(part)}
    maps = Maps({name: [] for name in observed})
    mixers = [name for name, part in model.named_modules() if isinstance(part, Mixer)]
    maps.without = [name for name in dict.fromkeys([*parts, *mixers]) if name not in observed]
    before = {name: (part.observers, part.edits) for name, part in observed.items()}
    for name, part in observed.items():
        part.observers = (*part.observers, maps[name].append)
        if gradients:  # a no-op edit, so that the context is computed from the weights
            part.edits = (*part.edits, lambda weights, visible: weights)
    try:
        yield maps
    finally:
        for name, part in observed.items():
            part.observers, part.edits = before[name]


def makers(model: nn.Module) -> Iterator[tuple[str, Kernel | Alignment]]:
    """Yield the kernel or alignment of each attention, with the attention's name."""
    for name, module in model.named_modules():
        if isinstance(module, Alignment):
            yield name, module
        elif isinstance(module, Attention):
            yield from ((name, part) for part in module.modules() if isinstance(part, Kernel))


def place_of(name: str) -> tuple[str, int | None]:
    """Return the slot of an attention (encoder, decoder, cross or question) and its layer."""
    other = re.search(r"(cross|question)_attention$", name)
    layer = re.search(r"layers\.(\d+)\.", name)
    return other[1] if other else name.partition(".")[0], int(layer[1]) if layer else None


def has_weights(part: Kernel | Alignment) -> bool:
    """Return True if it has observable weights over keys."""
    return part.has_weights if isinstance(part, Alignment) else part.abilities.weights
