"""Parts of a model that stay fixed in training, or learn at rates of their own."""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from seqattn.checking import BadValue, CountOrNone, shown
from seqattn.errors import UserError
from seqattn.positions import Position

_WORDS = {"embeddings": "*embedding*", "norms": "*norm*"}
"""Names of parts that occur in several places of a model."""
_RANGE = r"(?<![^.])(\d+)-(\d+)(?![^.])"
"""Pattern of a range between dots, such as that of encoder.layers.0-3."""
_MOMENTS = "exp_avg", "state1", "momentum_buffer"
"""Names of a first moment in the states of our optimizers."""


@dataclass(frozen=True)
class ParameterGroups:
    """Parts of a model, by patterns of their parameters' names.

    A pattern is a name or the first words of names, such as `encoder.layers.0`; `*` stands for any
    text, `0-3` for these numbers, and `embeddings` and `norms` for all of them. A parameter with
    several names, such as a shared table, matches by any of them.

    Args:
        freeze: patterns of parameters that stay fixed.
        freeze_steps: optimizer steps after which these train, too; None for never.
        lr_factors: factors on the learning rate by pattern; the last that matches applies.
    """

    freeze: Sequence[str] = ()
    freeze_steps: CountOrNone | None = None
    lr_factors: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.freeze_steps and not self.freeze:
            raise UserError("freeze_steps needs parts to freeze; add freeze=[embeddings]")
        factors: Any = self.lr_factors
        numbers: Any = factors.values() if isinstance(factors, Mapping) else [None]
        if not all(type(x) in (int, float) and 0 < x <= 1_000 for x in numbers):
            must = "must be numbers above 0 and of at most 1,000 by part, such as {encoder: 0.5}"
            raise BadValue("lr_factors", f"{must}, got {shown(factors)}")

    def freezes(self, step: int) -> bool:
        """Return True if the parts to freeze are fixed in an optimizer step, counted from 0."""
        return self.freeze_steps is None or step < self.freeze_steps

    def frozen(self, model: nn.Module) -> list[nn.Parameter]:
        """Return the parameters to freeze. Raises: UserError: if a pattern has none, or all are."""
        some = [weight for pattern in self.freeze for weight in _matching(model, pattern, "freeze")]
        if some and set(map(id, some)) == set(map(id, model.parameters())):
            raise UserError("freeze leaves no parameter to train; name fewer parts")
        return some

    def split(self, model: nn.Module, optimizer: Optimizer) -> Optimizer:
        """Divide the groups of a new optimizer by `lr_factors`, and scale their rates."""
        matched = {name: _matching(model, name, "lr_factors") for name in self.lr_factors}
        part_of = {id(weight): name for name, weights in matched.items() for weight in weights}
        groups: list[dict[str, Any]] = []
        next_index = count()
        for group in optimizer.param_groups if part_of else ():
            new_groups: dict[str, dict[str, Any]] = {}
            for weight in group["params"]:
                part = part_of.get(id(weight), "")
                factor = self.lr_factors.get(part, 1.0)
                about = {"part": part, "factor": factor, "places": [], "params": []}
                new = new_groups.setdefault(part, {**group, "lr": group["lr"] * factor, **about})
                new["places"].append(next(next_index))
                new["params"].append(weight)
            groups += new_groups.values()
        optimizer.param_groups = groups or optimizer.param_groups
        return optimizer

    def notices(self, model: nn.Module) -> list[str]:
        """Return lines on the frozen share of the parameters, and on rates; none by default."""
        lines, frozen = [], set(map(id, self.frozen(model)))
        if frozen:
            sizes = {id(weight): weight.numel() for weight in model.parameters()}
            size = sum(sizes.values())
            trains = size - sum(sizes[weight_id] for weight_id in frozen)
            until = f" until step {self.freeze_steps:,}" if self.freeze_steps else ""
            parameters = model.named_parameters(remove_duplicate=False)
            names = [name for name, weight in parameters if id(weight) in frozen]
            shared = [name for name in names if not any(_matches(name, p) for p in self.freeze)]
            lines.append(
                f"training {trains:,} of {size:,} parameters ({100 * trains / size:.1f} %){until}; "
                f"frozen: {', '.join(self.freeze)}"
                + (f"; shared with these and frozen, too: {', '.join(shared)}" if shared else "")
            )
        if self.lr_factors:
            factors = [f"{factor:g} for {part}" for part, factor in self.lr_factors.items()]
            lines.append(f"optimizer.lr times {', '.join(factors)}")
        return lines


def regrouped(state: Mapping[str, Any], model: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    """Arrange an optimizer's saved state by the groups of one with other `lr_factors`.

    Also that of an AdamW of earlier versions, which took all parameters of two axes for matrices,
    except embeddings and positions. Raises UserError for other groups of weights.
    """

    def indices(groups: Sequence[Mapping[str, Any]]) -> list[int]:
        return [index for group in groups for index in group.get("places", group["params"])]

    groups, saved = optimizer.state_dict()["param_groups"], state["state"]
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    before = dict(zip(indices(state["param_groups"]), numbers, strict=True))
    orders = [indices(groups)]
    if all(group.keys() == groups[0].keys() for group in groups):  # one algorithm for all
        found = [part for part in model.modules() if isinstance(part, nn.Embedding | Position)]
        tables = {id(table) for part in found for table in part.parameters(recurse=False)}
        earlier = sorted(model.parameters(), key=lambda x: x.dim() < 2 or id(x) in tables)
        index_of = {id(weight): index for index, weight in enumerate(earlier)}
        orders.append([index_of[id(weight)] for weight in weights])
    for order in orders:
        pairs = [(new, before.get(old)) for new, old in enumerate(order)]
        moments = {new: _shaped(saved[old], weights[new]) for new, old in pairs if old in saved}
        sizes = [(one.get(key), weights[new]) for new, one in moments.items() for key in _MOMENTS]
        if all(moment is None or moment.shape == weight.shape for moment, weight in sizes):
            return {**state, "state": moments, "param_groups": groups}
    first = "the checkpoint has the optimizer of an earlier version"
    raise UserError(f"{first}; start a new run with init_from=RUN/model")


def _shaped(state: Mapping[str, Any], weight: Tensor) -> dict[str, Any]:
    """Return the state of a weight; that of a single number may be a scalar of earlier versions."""
    return {
        key: x.reshape(weight.shape)
        if weight.numel() == 1 and key != "step" and isinstance(x, Tensor)
        else x
        for key, x in state.items()
    }


def _matching(model: nn.Module, pattern: str, key: str) -> list[nn.Parameter]:
    """Return the parameters with a matching name. Args: key: of the pattern, for messages."""
    named = list(model.named_parameters(remove_duplicate=False))
    weights = [weight for name, weight in named if _matches(name, pattern)]
    if weights:
        return weights
    words = [name.split(".") for name, _ in named]
    names = {".".join(some[:end]): None for some in words for end in range(1, len(some) + 1)}
    close = difflib.get_close_matches(pattern, [*_WORDS, *names], n=3, cutoff=0.5)
    close = close or [*_WORDS, *(name for name in names if "." not in name)]
    raise UserError(f"{key}: {pattern} matches no parameter; use a name such as {', '.join(close)}")


def _matches(name: str, pattern: str) -> bool:
    pattern = _WORDS.get(pattern, pattern)
    texts = [re.escape(text).replace(r"\*", ".*") for text in re.split(_RANGE, pattern)[::3]]
    match = re.fullmatch(r"(\d+)".join(texts) + r"(?:\..*)?", name)
    numbers = zip(match.groups() if match else (), re.findall(_RANGE, pattern))
    return match is not None and all(int(a) <= int(n) <= int(b) for n, (a, b) in numbers)
