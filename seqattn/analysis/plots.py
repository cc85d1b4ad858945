"""Pictures of attention."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import torch
from torch import Tensor

matplotlib.use("Agg")
from matplotlib.axes import Axes
from matplotlib.figure import Figure


def heatmap(
    panels: Mapping[str, Tensor], queries: Sequence[str], keys: Sequence[str], title: str
) -> Figure:
    """Weights as dark squares, with the tokens on the axes.

    Args:
        panels: a title for each matrix of weights (T, S).
        queries: T tokens, down the side.
        keys: S tokens, along the top.
        title: over everything.
    """
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    width, height = max(3.2, 0.36 * len(keys) + 1.2), max(2.6, 0.30 * len(queries) + 1.4)
    figure = Figure(figsize=(columns * width, rows * height + 0.5), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for axis, (name, weights) in zip(axes, panels.items()):
        _draw(axis, weights.detach().float().cpu(), queries, keys, name)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    figure.suptitle(title)
    return figure


def _draw(
    axis: Axes, weights: Tensor, queries: Sequence[str], keys: Sequence[str], name: str
) -> None:
    axis.imshow(weights.numpy(), cmap="Blues", vmin=0, vmax=float(weights.max().clamp(min=1e-9)))
    axis.set_xticks(range(len(keys)), _shown(keys), rotation=60, ha="left", rotation_mode="anchor")
    axis.set_yticks(range(len(queries)), _shown(queries))
    axis.xaxis.tick_top()
    axis.tick_params(length=0, labelsize=9)
    axis.set_title(name, fontsize=10)


def _shown(tokens: Sequence[str]) -> list[str]:
    return [token.replace("▁", " ").strip() or "␣" for token in tokens]


def save(figure: Figure, path: Path) -> Path:
    """Writes a figure as the suffix says (png, pdf, svg); makes its directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path


def mean_heads(weights: Tensor) -> Tensor:
    """The mean over heads of the first sentence's weights: (B, H, T, S) -> (T, S)."""
    return torch.mean(weights[0], dim=0)
