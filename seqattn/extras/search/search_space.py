"""Which models a search may try, and those of them that can be."""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import product, zip_longest
from typing import Annotated, Any, NamedTuple

from annotated_types import MaxLen, MinLen

from seqattn.bundle.architecture import PARTS, Architecture, Vocabularies
from seqattn.bundle.choices import SLOT_NODES, choices
from seqattn.bundle.nodes import Node, nearest
from seqattn.checking import BadValue, Count, Depth, Width, checked
from seqattn.errors import UserError
from seqattn.extras.compare.costs import sizes_of
from seqattn.extras.search.search_trials import Trial

Counts = Annotated[list[Count], MinLen(1)]
Names = Annotated[list[str], MinLen(1)]


@checked
@dataclass(frozen=True)
class SearchSpace:
    """The values that each part of a model may have; None for that of the run alone.

    What a part does not have is not varied: recurrent models have no heads and no positions, and
    only some attentions a window.

    Args:
        attention: names of choices; None for all that the model takes. One that cannot serve in all
            slots serves where it can, beside multi-head attention.
        without: names that are left out of all.
        heads: query heads.
        kv_heads: key and value heads; None for those of each choice.
        window: tokens, of attentions that have one.
        position: names of choices.
        depth: layers of encoder and decoder; a pair for each its own.
        width: of the model; its feed-forward layers keep their proportion to it.

    Raises:
        BadValue: for a name that is not there.
    """

    attention: Names | None = None
    without: list[str] = field(default_factory=list)
    heads: Counts | None = None
    kv_heads: Counts | None = None
    window: Counts | None = None
    position: Names | None = None
    depth: Annotated[list[Depth | Annotated[list[Depth], MinLen(2), MaxLen(2)]], MinLen(1)] | (
        None
    ) = None
    width: Annotated[list[Width], MinLen(1)] | None = None

    def __post_init__(self) -> None:
        for key, group in (("attention",) * 2, ("without", "attention"), ("position",) * 2):
            known = choices(group)
            for name in getattr(self, key) or ():
                if name not in known:
                    raise BadValue(key, f"names {name}, which is not there{nearest(name, known)}")

    def draw(self, settings: Mapping[str, Node], most: Callable[[int], int], seed: int) -> "Drawn":
        """Models of the space that can be, the run's own first; each attention in its turn.

        Args:
            settings: of the run.
            most: how many are drawn at most, of so many.
            seed: of the order within an attention.

        Raises:
            UserError: where the run's own model cannot be.
        """
        order, base = random.Random(seed), Architecture.of(settings)
        joint = bool(settings["tokenizer"]["joint"])
        base.check(joint)
        taken = base.taken()
        names = [name for name in self.attention or taken if name not in self.without]
        grids = [list(self._grid(name, taken.get(name, []), base, settings)) for name in names]
        for grid in grids:
            order.shuffle(grid)
        turns = [one for turn in zip_longest(*grids) for one in turn if one is not None]
        own = {name: settings[name] for name in PARTS if settings.get(name) is not None}
        first = Candidate("as given", own, ())
        known = next((one.name for one in turns if one.key == first.key), "")
        first = first._replace(name=f"{known} (as given)" if known else first.name)
        found, refused, same = {first.key: first}, Counter[str](), 0
        count = most(len(turns) + (not known))
        for candidate in turns:
            if len(found) >= count:
                break
            if candidate.key in found:
                same += candidate.name != known
                continue
            try:
                Architecture.of(candidate.nodes).check(joint)
                found[candidate.key] = candidate
            except UserError as error:
                refused[str(error)] += 1
        return Drawn(list(found.values()), len(turns), same, dict(refused))

    def _grid(
        self, name: str, fits: Sequence[str], base: Architecture, settings: Mapping[str, Node]
    ) -> "Iterator[Candidate]":
        """Every combination with one attention. Args: fits: the slots that it can serve."""
        slots = [slot for slot in base.model.attentions if slot != "cross"] or ["cross"]
        served = [slot for slot in slots if slot in fits]
        partly = served[0] if 0 < len(served) < len(slots) else None
        node = choices("attention")[name]
        axes = {axis: getattr(self, axis) or [None] for axis in _Values._fields}
        for axis, has in (
            ("heads", "num_heads" in node),
            ("kv_heads", "num_kv_heads" in node),
            ("window", "window" in {**node, **node.get("kernel", {})}),
            ("position", base.model.uses_positions),
        ):
            axes[axis] = axes[axis] if has else [None]
        varied = [axis for axis, values in axes.items() if len(values) > 1]
        for values in product(*axes.values()):
            one = _Values(*values)
            yield one.candidate(name, partly, settings, varied)


class Candidate(NamedTuple):
    """A model that a search may train."""

    name: str
    nodes: dict[str, Node]
    """Its architecture."""
    overrides: Sequence[str]
    """Those that make the run's model into it."""

    @property
    def key(self) -> str:
        """What is the same for candidates of one model."""
        return json.dumps(self.nodes, sort_keys=True)

    def sizes(self, vocabulary: Vocabularies) -> dict[str, Any]:
        """`parameters`, and `cache_bytes` of a model that decodes."""
        sizes = sizes_of(Architecture.of(self.nodes).build(vocabulary).eval())
        return {key: value for key, value in sizes.items() if key in Trial.model_fields}


class Drawn(NamedTuple):
    """What came of drawing from a space."""

    candidates: list[Candidate]
    combinations: int
    same: int
    """Combinations that were a model already drawn."""
    refused: dict[str, int]
    """How many could not be, by the reason."""

    @property
    def told(self) -> list[str]:
        """A line each."""
        first = f"{len(self.candidates)} models are tried, of {self.combinations:,} combinations"
        same = [f"{self.same} were a model already drawn"] if self.same else []
        return [first, *same, *(f"{n} left out: {why}" for why, n in self.refused.items())]


class _Values(NamedTuple):
    heads: int | None
    kv_heads: int | None
    window: int | None
    position: str | None
    depth: int | list[int] | None
    width: int | None

    def candidate(
        self, name: str, slot: str | None, settings: Mapping[str, Node], varied: Sequence[str]
    ) -> Candidate:
        """The candidate of these values. Args: slot: where alone the attention can serve."""
        nodes: dict[str, Node] = {key: deepcopy(settings[key]) for key in ("model", "position")}
        own, words = self._attention(name, settings)
        group = f"attention@{slot}_attention" if slot else "attention"
        words = [f"{group}={name}", *(f"{slot}_{word}" if slot else word for word in words)]
        nodes |= {f"{slot}_attention" if slot else "attention": own}
        if slot:
            nodes["attention"], beside = self._attention("mha", settings)
            words = ["attention=mha", *beside, *words]
        if self.position is not None:
            nodes["position"] = choices("position")[self.position]
            words.append(f"position={self.position}")
        taken_away = [key for key in SLOT_NODES if settings.get(key) and key not in nodes]
        words += [f"attention@{key}=null" for key in taken_away]
        sizes = self._sizes(settings["model"])
        nodes["model"] |= sizes
        words += [f"model.{key}={value}" for key, value in sizes.items()]
        told = {"heads": "{}h", "kv_heads": "{}kv", "window": "w{}", "width": "d{}"}
        parts = {axis: getattr(self, axis) for axis in self._fields if axis in varied}
        shown = (told.get(a, "{}").format(v) for a, v in parts.items() if v and a != "depth")
        layers = [f"{v}" for k, v in sizes.items() if k.endswith("layers")]
        depth = ["+".join(layers)] if "depth" in varied else []
        return Candidate(" ".join([name, *shown, *depth]), nodes, words)

    def _attention(self, name: str, settings: Mapping[str, Node]) -> tuple[Node, list[str]]:
        """The node of a choice with these values, and the overrides that make it."""
        node: Node = deepcopy(choices("attention")[name])
        given = settings.get("attention")
        own = given if isinstance(given, dict) else {}
        values: dict[str, int] = {}
        if "num_heads" in node:
            follows = node.get("num_kv_heads") == node["num_heads"]
            values["num_heads"] = self.heads or own.get("num_heads", node["num_heads"])
            if "num_kv_heads" in node:
                theirs = values["num_heads"] if follows else node["num_kv_heads"]
                values["num_kv_heads"] = self.kv_heads or theirs
        if "dropout" in node and own.get("dropout"):
            values["dropout"] = own["dropout"]
        words = [f"attention.{key}={value}" for key, value in values.items()]
        node |= values
        if self.window is not None:
            home = node if "window" in node else node.get("kernel", {})
            if "window" in home:
                home["window"] = self.window
                words.append(f"attention.{'' if home is node else 'kernel.'}window={self.window}")
        return node, words

    def _sizes(self, model: Node) -> dict[str, int]:
        """The values of depth and width, by the keys of the model."""
        sizes: dict[str, int] = {}
        stacks = [key for key in model if key in ("encoder_layers", "decoder_layers")]
        if self.depth is not None:
            pair = self.depth if isinstance(self.depth, list) else [self.depth] * 2
            sizes |= dict(zip(stacks, pair, strict=False))
        if self.width is not None:
            sizes["dim"] = self.width
            if "ffn_dim" in model:
                sizes["ffn_dim"] = round(model["ffn_dim"] * self.width / model["dim"])
        return sizes
