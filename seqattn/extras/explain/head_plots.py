"""Plots of heads: roles and importance, and scores under ablation."""

from collections.abc import Mapping
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from seqattn.extras.explain.head_figures import AttentionHeads

COLORS = {
    "positional": "#56B4E9", "alignment": "#009E73", "end": "#E69F00", "begin": "#F0E442",
    "broad": "#CC79A7", "mixed": "#BBBBBB", "unused": "#FFFFFF", "unknown": "#FFFFFF",
}  # fmt: skip
"""Colors of roles from Okabe and Ito, distinguishable by color-blind readers."""


class AblationCurve(NamedTuple):
    """Scores by number of removed heads, least important first and in random order."""

    name: str
    signature: str
    out: list[int]
    by_importance: list[float]
    at_random: list[list[float]]
    """Scores for each random order."""


def head_map(attentions: Mapping[str, AttentionHeads], title: str) -> Figure:
    """Plot a panel per slot, layers by heads, with roles as colors and importance as bars."""
    slots: dict[str, list[AttentionHeads]] = {}
    for name, heads in attentions.items():
        slots.setdefault(heads.slot or name, []).append(heads)
    num_heads = max(1, *(len(attention.heads) for attention in attentions.values()))
    deep = max(map(len, slots.values()))
    size = (max(6.0, 1.0 + (0.75 * num_heads + 0.9) * len(slots)), 2.6 + 0.75 * deep)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(slots), squeeze=False)[0]
    roles = set[str]()
    for axes, (slot, layers) in zip(panels, slots.items(), strict=True):
        roles |= _panel(axes, layers, num_heads)
        axes.set(title=slot, xlabel="head", xlim=(0.5, num_heads + 0.5))
    panels[0].set_ylabel("layer")
    patches = [Patch(fc=COLORS[role], ec="black", label=role) for role in COLORS if role in roles]
    figure.legend(handles=patches, loc="outside lower center", ncols=len(patches), frameon=False)
    figure.suptitle(f"{title}\ncolor: role; bar and number: importance within the attention")
    return figure


def _panel(axes: Axes, layers: list[AttentionHeads], num_heads: int) -> set[str]:
    """Draw the heads of a slot and return their roles."""
    roles = set[str]()
    for row, attention in enumerate(layers, 1):
        for column, head in enumerate(attention.heads, 1):
            corner = column - 0.46, row - 0.46
            axes.add_patch(Rectangle(corner, 0.92, 0.92, fc=COLORS[head.role], ec="black", lw=0.8))
            roles.add(head.role)
            if head.importance is not None:
                high = 0.92 * min(1.0, head.importance)
                low = column - 0.46, row + 0.46 - high
                axes.add_patch(Rectangle(low, 0.14, high, fc="black"))
                axes.text(column + 0.07, row, f"{head.importance:.2f}", ha="center", va="center",
                          fontsize=9)  # fmt: skip
    numbers = [attention.layer or 1 for attention in layers]
    axes.set_yticks(range(1, len(layers) + 1), list(map(str, numbers)))
    axes.set_ylim(len(layers) + 0.5, 0.5)
    axes.set_xticks(range(1, num_heads + 1))
    axes.tick_params(length=0)
    axes.set_aspect("equal")
    axes.spines[:].set_visible(False)
    return roles


def ablation_curves(curve: AblationCurve) -> Figure:
    """Plot the score as heads are removed: the least important first, and at random."""
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    scores = list(zip(*curve.at_random, strict=True))
    means = [sum(values) / len(values) for values in scores]
    axes.plot(curve.out, curve.by_importance, "o-", color="#0072B2", label="least important first")
    axes.plot(
        curve.out, means, "s--", color="#D55E00", label=f"random, mean of {len(curve.at_random)}"
    )
    axes.fill_between(
        curve.out, [min(values) for values in scores], [max(values) for values in scores],
        color="#D55E00", alpha=0.15, lw=0, label="range of random orders",
    )  # fmt: skip
    axes.set(xlabel=f"heads removed (of {curve.out[-1]})", ylabel=curve.name, ylim=(0, None))
    axes.set_title(f"{curve.name} as heads are removed")
    axes.set_xticks(curve.out)
    axes.grid(True, alpha=0.2)
    axes.legend(frameon=False)
    return figure
