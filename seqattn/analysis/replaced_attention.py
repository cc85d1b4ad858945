"""Which attentions of a model to replace, one by one and together, to see whether they matter."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from torch import nn

from seqattn.analysis.capture import has_weights, makers
from seqattn.analysis.intervene import permuted, uniform
from seqattn.attention.alignment import Alignment
from seqattn.attention.watched import Edit
from seqattn.errors import UserError

EDITS: Mapping[str, Callable[[int], Edit]] = {"uniform": lambda seed: uniform, "permuted": permuted}
"""What weights are replaced by: a seed gives an edit."""


class Parts(NamedTuple):
    """Names of attentions, by what they are together."""

    parts: dict[str, list[str]]
    """"all" and, where there are several, "encoder", "decoder" and "cross" and each layer of
    them, such as "cross 1"."""
    without: list[str]
    """Those that have no weights to replace."""


def parts_of(model: nn.Module) -> Parts:
    """The attentions of a model, layer by layer, slot by slot and all of them.

    Raises:
        UserError: none has weights.
    """
    slots: dict[str, list[str]] = {"encoder": [], "decoder": [], "cross": []}
    without = []
    for name, part in makers(model):
        if not has_weights(part):
            without.append(name)
            continue
        is_cross = isinstance(part, Alignment) or name.endswith("cross_attention")
        slots["cross" if is_cross else name.partition(".")[0]].append(name)
    found = {slot: names for slot, names in slots.items() if names}
    if not found:
        raise UserError("no attention has weights; the mechanisms of this model mix without them")
    parts = {"all": [name for names in found.values() for name in names]}
    if len(found) > 1:
        parts |= found
    for slot, names in found.items():
        if len(names) > 1:
            parts |= {f"{slot} {number}": [name] for number, name in enumerate(names, 1)}
    return Parts(parts, without)
