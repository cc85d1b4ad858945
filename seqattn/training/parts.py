"""Parts of a model that stay fixed in training, or learn at rates of their own."""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.optim import Optimizer

from seqattn.checking import BadValue, CountOrNone, shown
from seqattn.errors import UserError

_WORDS = {"embeddings": "*embedding*", "norms": "*norm*"}
"""Names of parts that occur in several places of a model."""
_RANGE = r"(?<![^.])(\d+)-(\d+)(?![^.])"
"""Pattern of a range between dots, such as that of encoder.layers.0-3."""


@dataclass(frozen=True)
class Parts:
    """Parts of a model, by patterns of their parameters' names.

    A pattern is a name or the first words of names, such as `encoder.layers.0`; `*` stands for any
    text, `0-3` for these numbers, and `embeddings` and `norms` for all of them. A parameter with
    several names, such as a shared table, matches by any of them.

    Args:
        freeze: patterns of parameters that stay fixed.
        freeze_steps: optimizer steps after which these train, too; None for never.
        lr_factors: factors on the learning rate by pattern; the last that matches applies.

    Raises:
        UserError: for a value out of its range.
    """

    freeze: Sequence[str] = ()
    freeze_steps: CountOrNone | None = None
    lr_factors: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.freeze_steps and not self.freeze:
            raise UserError("freeze_steps needs parts to freeze; add freeze=[embeddings]")
        if not isinstance(self.lr_factors, Mapping):
            must = "must be factors by part, such as {encoder: 0.5}"
            raise BadValue("lr_factors", f"{must}, got {shown(self.lr_factors)}")
        for pattern, factor in self.lr_factors.items():
            if type(factor) not in (int, float) or not 0 < factor <= 1_000:
                must = "must be a number above 0 and of at most 1,000"
                raise BadValue(f"lr_factors.{pattern}", f"{must}, got {shown(factor)}")

    def frozen(self, model: nn.Module) -> list[nn.Parameter]:
        """Return the parameters to freeze.

        Raises:
            UserError: if a pattern matches nothing, or no parameter is left to train.
        """
        some = [weight for pattern in self.freeze for weight in _matching(model, pattern, "freeze")]
        weights = list({id(weight): weight for weight in some}.values())
        if weights and len(weights) == len(list(model.parameters())):
            last = f"remove {self.freeze[-1]}" if len(self.freeze) > 1 else "name fewer parts"
            raise UserError(f"freeze leaves no parameter to train; {last}")
        return weights

    def split(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Divide the groups of a new optimizer by `lr_factors`, and scale their rates.

        Raises:
            UserError: if a pattern matches nothing.
        """
        matched = {name: _matching(model, name, "lr_factors") for name in self.lr_factors}
        part_of = {id(weight): name for name, weights in matched.items() for weight in weights}
        groups: list[dict[str, Any]] = []
        place = 0
        for group in optimizer.param_groups:
            own: dict[str, dict[str, Any]] = {}
            for weight in group["params"]:
                part = part_of.get(id(weight), "")
                factor = self.lr_factors.get(part, 1.0)
                about = {"part": part, "factor": factor, "places": [], "params": []}
                new = own.setdefault(part, {**group, "lr": group["lr"] * factor, **about})
                new["places"].append(place)
                new["params"].append(weight)
                place += 1
            groups += own.values()
        if self.lr_factors:
            optimizer.param_groups = groups

    def report(self, model: nn.Module) -> list[str]:
        """Return lines on the frozen share of the parameters, and on rates; none by default."""
        lines, weights = [], self.frozen(model)
        if weights:
            size = sum(weight.numel() for weight in model.parameters())
            trains = size - sum(weight.numel() for weight in weights)
            until = f" until step {self.freeze_steps:,}" if self.freeze_steps else ""
            lines.append(
                f"training {trains:,} of {size:,} parameters ({100 * trains / size:.1f} %){until}; "
                f"frozen: {', '.join(self.freeze)}"
            )
            ids = {id(weight) for weight in weights}
            shared = [
                name
                for name, weight in model.named_parameters(remove_duplicate=False)
                if id(weight) in ids and not any(_matches(name, one) for one in self.freeze)
            ]
            if shared:
                lines.append(f"shared with a frozen part and frozen, too: {', '.join(shared)}")
        if self.lr_factors:
            factors = [f"{factor:g} for {part}" for part, factor in self.lr_factors.items()]
            lines.append(f"optimizer.lr times {', '.join(factors)}")
        return lines


def regrouped(state: Mapping[str, Any], optimizer: Optimizer) -> dict[str, Any]:
    """Arrange the saved state of an optimizer whose groups other `lr_factors` have divided.

    Args:
        state: state of an optimizer, from its `state_dict`.
        optimizer: an optimizer of the same kind, with the groups to arrange it by.
    """

    def places(groups: Sequence[Mapping[str, Any]]) -> list[int]:
        return [place for group in groups for place in group.get("places", group["params"])]

    numbers = [number for group in state["param_groups"] for number in group["params"]]
    before = dict(zip(places(state["param_groups"]), numbers, strict=True))
    groups = optimizer.state_dict()["param_groups"]
    pairs = [(new, before[place]) for new, place in enumerate(places(groups))]
    moments = {new: state["state"][old] for new, old in pairs if old in state["state"]}
    return {**state, "state": moments, "param_groups": groups}


def _matching(model: nn.Module, pattern: str, key: str) -> list[nn.Parameter]:
    """Return the parameters with a matching name. Args: key: of the pattern, for messages."""
    named = list(model.named_parameters(remove_duplicate=False))
    weights = [weight for name, weight in named if _matches(name, pattern)]
    if weights:
        return weights
    words = [name.split(".") for name, _ in named]
    names = {".".join(some[:end]): None for some in words for end in range(1, len(some) + 1)}
    close = difflib.get_close_matches(pattern, [*_WORDS, *names], n=3, cutoff=0.5)
    close = close or [*_WORDS, *dict.fromkeys(some[0] for some in words)]
    raise UserError(f"{key}: {pattern} matches no parameter; use a name such as {', '.join(close)}")


def _matches(name: str, pattern: str) -> bool:
    pattern = _WORDS.get(pattern, pattern)
    texts = re.split(_RANGE, pattern)[::3]
    text = r"(\d+)".join(re.escape(part).replace(r"\*", ".*") for part in texts)
    match = re.fullmatch(rf"{text}(?:\..*)?", name)
    if match is None:
        return False
    pairs = zip(match.groups(), re.findall(_RANGE, pattern), strict=True)
    return all(int(low) <= int(number) <= int(high) for number, (low, high) in pairs)
