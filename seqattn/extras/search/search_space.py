"""Models that a search may try."""

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from itertools import product, zip_longest
from typing import Annotated, Any, NamedTuple

from annotated_types import MaxLen, MinLen

from seqattn.checking import BadValue, Count, Depth, Width
from seqattn.errors import UserError
from seqattn.settings.assembly import PARTS, Architecture
from seqattn.settings.choices import SLOT_NODES, choices
from seqattn.settings.nodes import Node, build, nearest

Counts = Annotated[list[Count], MinLen(1)]
_choices = cache(choices)  # cached: reading the files for each candidate is slow
_MAX_MODELS = 1000
"""Number of models of a space without `budget.candidates`."""
_NAME_FORMATS = {"heads": "{}h", "kv_heads": "{}kv", "window": "w{}", "width": "d{}"}
"""Formats of values in a model's name."""


class Candidate(NamedTuple):
    """Model to try: its name, and the overrides that turn the run's own model into it."""

    name: str
    overrides: tuple[str, ...] = ()


class ModelList(NamedTuple):
    """Models of a space, the run's own first, and notes on what was skipped."""

    candidates: list[Candidate]
    lines: list[str]


@dataclass(frozen=True)
class SearchSpace:
    """Values of each part of a model to choose from; None keeps the run's own.

    A part that a model lacks is not varied: recurrent models have no heads and no positions, and
    only a few attentions have a window.

    Args:
        attention: names of choices; None for all that the model supports, an empty list for the
            run's own model alone. An attention that does not support all slots is used in those it
            supports, with multi-head attention in the others.
        without: names to leave out.
        heads: query heads.
        kv_heads: key and value heads; None for those of each choice.
        window: tokens, for attentions that have one.
        position: names of choices.
        depth: layers of encoder and decoder; a pair sets them separately.
        width: width of the model; feed-forward layers keep their ratio to it.
        ranges: minimum and maximum of keys of the run, such as `optimizer.lr`; a positive range
            that spans a factor of 10 or more is sampled on a logarithmic scale.

    Raises:
        BadValue: if a name is unknown, or a range is empty.
    """

    attention: list[str] | None = None
    without: list[str] = field(default_factory=list)
    heads: Counts | None = None
    kv_heads: Counts | None = None
    window: Counts | None = None
    position: Annotated[list[str], MinLen(1)] | None = None
    depth: Annotated[list[Depth | Annotated[list[Depth], MinLen(2), MaxLen(2)]], MinLen(1)] | (
        None
    ) = None
    width: Annotated[list[Width], MinLen(1)] | None = None
    ranges: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for key, group in (("attention",) * 2, ("without", "attention"), ("position",) * 2):
            names = _choices(group)
            for name in getattr(self, key) or ():
                if name not in names:
                    raise BadValue(key, f"contains the unknown choice {name}{nearest(name, names)}")
        for key, ends in (self.ranges or {}).items():
            numbers = isinstance(ends, list) and all(type(end) in (int, float) for end in ends)
            if not (
                numbers and len(ends) == 2 and all(map(math.isfinite, ends)) and ends < ends[1:]
            ):
                raise BadValue(f"ranges.{key}", f"must be [MIN,MAX], got {ends}")

    def draw(self, settings: Mapping[str, Node], max_count: int | None, seed: int) -> ModelList:
        """List the models of the space that can be built, alternating between attentions.

        Args:
            settings: settings of the run.
            max_count: maximum number of models; None for all.
            seed: seed of the order within an attention.

        Raises:
            UserError: if the run's own model cannot be built, or a range does not fit the run.
        """
        order, base = random.Random(seed), Architecture.of(settings)
        vocabulary = settings["tokenizer"]  # of files it has no such key
        joint = bool(vocabulary.get("joint", vocabulary.get("target") is None))
        base.check(joint)
        self._check_ranges(settings)
        supported = {} if self.attention == [] else base.accepted_attentions()
        names = [name for name in self.attention or supported if name not in self.without]
        grids = [list(self._grid(name, supported.get(name, []), base, settings)) for name in names]
        for grid in grids:
            order.shuffle(grid)
        turns = [model for turn in zip_longest(*grids) for model in turn if model is not None]
        base_nodes = applied((), settings)
        models, refused = [(Candidate("as given"), base_nodes)], Counter[str]()
        for candidate in turns:
            if len(models) >= (max_count or _MAX_MODELS):
                break
            nodes = applied(candidate.overrides, settings)
            if nodes == base_nodes:
                models[0] = (Candidate(f"{candidate.name} (as given)"), base_nodes)
            elif nodes in (tried for _, tried in models):
                refused["same as another model"] += 1
            else:
                try:
                    Architecture.of(nodes).check(joint)
                    models.append((candidate, nodes))
                except UserError as error:
                    refused[str(error)] += 1
        lines = [f"models: {len(models)} of {len(turns):,} combinations"]
        lines += [f"{n} skipped: {why}" for why, n in refused.items()]
        return ModelList([candidate for candidate, _ in models], lines)

    def _check_ranges(self, settings: Mapping[str, Node]) -> None:
        """Raise UserError if a range is for a non-float key, or the run rejects its ends."""
        for key, ends in (self.ranges or {}).items():
            if not isinstance(value_at(key, settings), float):
                raise UserError(f"space.ranges.{key} must name a key with a floating-point value")
            group, *path, last = key.split(".")
            for end in ends:
                node = deepcopy(settings[group])
                value_at(".".join(path), node)[last] = end
                build(node, group)

    def _grid(
        self, name: str, fits: Sequence[str], base: Architecture, settings: Mapping[str, Node]
    ) -> Iterator[Candidate]:
        """Yield every combination with one attention. Args: fits: the slots that it supports."""
        slots = [slot for slot in base.model.attentions if slot != "cross"] or ["cross"]
        served = [slot for slot in slots if slot in fits]
        slot = served[0] if 0 < len(served) < len(slots) else None
        node = _choices("attention")[name]
        has = {
            "heads": "num_heads" in node,
            "kv_heads": "num_kv_heads" in node,
            "window": "window" in {**node, **node.get("kernel", {})},
            "position": base.model.uses_positions,
        }
        axes = {
            axis: (getattr(self, axis) if has.get(axis, True) else None) or [None]
            for axis in ("heads", "kv_heads", "window", "position", "width", "depth")
        }
        for combination in product(*axes.values()):
            values = dict(zip(axes, combination, strict=True))
            sizes = _sizes(values, settings["model"])
            parts = [
                _NAME_FORMATS.get(axis, "{}").format(value)
                for axis, value in values.items()
                if value and axis != "depth" and len(axes[axis]) > 1
            ]
            if len(axes["depth"]) > 1:
                parts.append("+".join(f"{n}" for key, n in sizes.items() if key.endswith("layers")))
            words = _overrides(name, slot, values, settings)
            words += [f"model.{key}={value}" for key, value in sizes.items()]
            yield Candidate(" ".join([name, *parts]), tuple(words))


def value_at(key: str, node: Node) -> Any:
    """Return the value of a dotted key in nested settings; None if missing."""
    for part in key.split(".") if key else ():
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def applied(overrides: Sequence[str], settings: Mapping[str, Node]) -> dict[str, Node]:
    """Return the nodes of a run's model with the overrides of a candidate."""
    nodes = {key: deepcopy(settings[key]) for key in PARTS if settings.get(key) is not None}
    for word in overrides:
        key, _, value = word.partition("=")
        group, _, slot = key.partition("@")
        *path, last = key.split(".")
        if path:
            value_at(".".join(path), nodes)[last] = int(value) if value.isdigit() else float(value)
        elif value == "null":
            nodes.pop(slot)
        else:
            nodes[slot or group] = deepcopy(_choices(group)[value])
    return nodes


def _overrides(
    name: str, slot: str | None, values: Mapping[str, Any], settings: Mapping[str, Node]
) -> list[str]:
    """Return overrides for attention and position. Args: slot: the only slot it supports."""
    words = _attention(name, slot, values, settings)
    if slot:
        words = [*_attention("mha", None, values, settings), *words]
    emptied = [key for key in SLOT_NODES if settings.get(key) and key != f"{slot}_attention"]
    words += [f"attention@{key}=null" for key in emptied]
    return [*words, f"position={values['position']}"] if values["position"] else words


def _attention(
    name: str, slot: str | None, values: Mapping[str, Any], settings: Mapping[str, Node]
) -> list[str]:
    """Return overrides that choose an attention, with the run's own heads and dropout."""
    node, base_node = _choices("attention")[name], settings.get("attention")
    base_node = base_node if isinstance(base_node, dict) else {}
    chosen: dict[str, Any] = {}
    if "num_heads" in node:
        chosen["num_heads"] = values["heads"] or base_node.get("num_heads", node["num_heads"])
    if "num_kv_heads" in node:
        follows = node["num_kv_heads"] == node["num_heads"]
        default = chosen["num_heads"] if follows else node["num_kv_heads"]
        chosen["num_kv_heads"] = values["kv_heads"] or default
    if "dropout" in node and base_node.get("dropout"):
        chosen["dropout"] = base_node["dropout"]
    if values["window"] and "window" in node:
        chosen["window"] = values["window"]
    elif values["window"] and "window" in node.get("kernel", {}):
        chosen["kernel.window"] = values["window"]
    key = f"{slot}_attention" if slot else "attention"
    group = f"attention@{key}" if slot else "attention"
    return [f"{group}={name}", *(f"{key}.{part}={value}" for part, value in chosen.items())]


def _sizes(values: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, int]:
    """Return the model's keys for a depth and a width."""
    sizes: dict[str, int] = {}
    depth, width = values["depth"], values["width"]
    if depth is not None:
        stacks = [key for key in model if key in ("encoder_layers", "decoder_layers")]
        pair = depth if isinstance(depth, list) else [depth] * 2
        sizes |= dict(zip(stacks, pair, strict=False))
    if width is not None:
        sizes["dim"] = width
        if "ffn_dim" in model:
            sizes["ffn_dim"] = round(model["ffn_dim"] * width / model["dim"])
    return sizes
