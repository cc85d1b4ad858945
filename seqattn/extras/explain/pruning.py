"""Removal of attention heads from a bundle's weights."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from seqattn.attention.base import Attention
from seqattn.attention.heads import MultiHeadAttention
from seqattn.bundle.bundle import Bundle
from seqattn.errors import UserError
from seqattn.settings.assembly import Architecture, Vocabularies, heads_of
from seqattn.settings.choices import choices
from seqattn.settings.nodes import TARGET, Node, import_path

_STACKS = {
    "encoder": ("encoder", "self"),
    "decoder": ("decoder", "self"),
    "cross": ("decoder", "cross"),
}
"""Stack of each slot, and the attribute of its attention."""
Heads = Mapping[str, Sequence[int]]
"""Heads of each attention, by its name; numbers refer to its current heads, from 0."""


class Units:
    """Heads to remove, grouped into units that can be removed separately.

    Query heads that share a key head, unless all do, are removed together, so that each remaining
    key head serves equally many. Each attention retains at least one unit.

    Args:
        count: number of query heads to remove.

    Raises:
        UserError: if an attention cannot lose heads, or too few can be removed.
    """

    def __init__(self, model: nn.Module, names: Iterable[str], count: int) -> None:
        self.units = {name: _units(name, model.get_submodule(name)) for name in names}
        self.count = count
        limit = sum(sum(map(len, units[1:])) for units in self.units.values())
        if count > limit:
            raise UserError(
                f"prune must be at most {limit}, got {count}; one key head and its query heads "
                f"remain in each of {len(self.units)} attentions"
            )

    def least_important(self, importance: Mapping[str, Tensor]) -> Heads:
        """Return the heads to retain in each attention when the least important of all are removed.

        Args:
            importance: importance of each head, by attention; a unit has the mean of its heads.

        Raises:
            UserError: if the sizes of units do not add up to the number.
        """
        ranked = sorted(
            (float(importance[name][unit].mean()), name, unit)
            for name, units in self.units.items()
            for unit in units
        )
        gone: dict[str, list[int]] = {name: [] for name in self.units}
        remaining = self.count
        for _, name, unit in ranked:
            heads = sum(map(len, self.units[name]))
            if len(unit) <= remaining and len(gone[name]) + len(unit) < heads:
                gone[name] += unit
                remaining -= len(unit)
        if remaining:
            size = max(len(units[0]) for units in self.units.values())
            raise UserError(
                f"prune must cover complete groups of {size} query heads that share a key head, "
                f"got {self.count}"
            )
        return {
            name: [head for unit in units for head in unit if head not in gone[name]]
            for name, units in self.units.items()
            if gone[name]
        }


def _units(name: str, attention: nn.Module) -> list[list[int]]:
    """Return the heads of an attention in units that can be removed separately."""
    assert isinstance(attention, Attention)
    if not isinstance(attention, MultiHeadAttention) or attention.kernel.unlike_heads:
        reason = getattr(getattr(attention, "kernel", None), "unlike_heads", "")
        kind = attention.name if reason else type(attention).__name__
        raise UserError(
            f"cannot remove heads of {name} ({kind}){f': {reason}' if reason else ''}; pruning "
            "supports multi-head attention with interchangeable heads, such as mha, gqa, mqa, "
            "sliding_window, linear or entmax"
        )
    shared = attention.num_heads // attention.num_kv_heads
    size = 1 if attention.num_kv_heads == 1 else shared
    return [list(range(first, first + size)) for first in range(0, attention.num_heads, size)]


def pruned(bundle: Bundle, retained: Heads) -> Bundle:
    """Return a bundle with the same weights, without those of removed heads.

    Args:
        retained: retained heads of each attention that loses heads.
    """
    config = _config(bundle, retained)
    model: Any = Architecture.of(config).build(Vocabularies.of(bundle.tokenizer))
    keep_heads(bundle.model, model, retained)
    device = next(bundle.model.parameters()).device
    return replace(bundle, model=model.to(device).eval(), config=config, scores={})


def _config(bundle: Bundle, retained: Heads) -> dict[str, Node]:
    """Return a configuration with the retained heads of each layer."""
    config, shared = dict(bundle.config), bundle.config["attention"]
    for slot, (stack, kind) in _STACKS.items():
        key = f"{slot}_attention"
        node = config.get(key) or (cross_node(shared) if slot == "cross" else shared)
        nodes = node if isinstance(node, list) else [node]
        layers = getattr(bundle.model, stack).layers
        names = [f"{stack}.layers.{number}.{kind}_attention" for number in range(len(layers))]
        if any(name in retained for name in names):
            config[key] = [
                _of_layer(nodes[number % len(nodes)], retained.get(name))
                for number, name in enumerate(names)
            ]
    return config


def cross_node(node: Node) -> Node:
    """Return the configuration of cross-attention that accompanies a self-attention."""
    if isinstance(node, list):
        return [cross_node(layer) for layer in node]
    copied = heads_of(import_path(node[TARGET]))
    heads = {name: node[name] for name in copied if name in node}
    return choices("attention")["mha"] | {"num_kv_heads": node["num_heads"]} | heads


def _of_layer(node: Node, retained: Sequence[int] | None) -> Node:
    if retained is None:
        return node
    previous = node.get("kept_heads") or range(node["num_heads"])
    return {**node, "kept_heads": [previous[head] for head in retained]}


@torch.no_grad()
def keep_heads(source: nn.Module, target: nn.Module, retained: Heads) -> None:
    """Copy weights to a model with fewer heads than `source`, including those per head.

    Per-head parameters of kernels and positions are selected likewise.

    Args:
        target: a Transformer like `source`, but with `kept_heads`.
        retained: heads of `source` in each attention that has fewer.
    """
    parts: dict[str, tuple[int, Sequence[int]]] = {}
    for name, heads in retained.items():
        attention: Any = source.get_submodule(name)
        shared = attention.num_heads // attention.num_kv_heads
        groups = sorted({head // shared for head in heads})
        parts |= {f"{name}.{of}.": (attention.num_kv_heads, groups) for of in ("key", "value")}
        parts[f"{name}."] = attention.num_heads, heads
        if name.endswith("self_attention"):
            stack, _, layer, _ = name.split(".")
            parts[f"{stack}.position.parts.{layer}."] = attention.num_heads, heads
    old = dict(chain(source.named_parameters(), source.named_buffers()))
    for name, new in chain(target.named_parameters(), target.named_buffers()):
        tensor = old[name]
        for axis in range(new.dim()):
            if tensor.shape[axis] != new.shape[axis]:
                count, heads = next(parts[part] for part in parts if name.startswith(part))
                index = torch.tensor(heads, device=tensor.device)
                by_head = tensor.unflatten(axis, (count, -1)).index_select(axis, index)
                tensor = by_head.flatten(axis, axis + 1)
        new.copy_(tensor)
