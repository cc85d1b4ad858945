"""Figures of attention weights and of measurements."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
from torch import Tensor

matplotlib.use("Agg")
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seqattn.errors import UserError
from seqattn.storage import file_faults, write_whole

_MARKERS = "osD^v<>phX*"


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
    for number, (name, weights) in enumerate(panels.items(), 1):
        axis = figure.add_subplot(rows, columns, number)
        shown = weights.detach().float().cpu()
        axis.imshow(shown.numpy(), cmap="Blues", vmin=0, vmax=float(shown.max().clamp(min=1e-9)))
        axis.set_xticks(
            range(len(keys)), _readable(keys), rotation=60, ha="left", rotation_mode="anchor"
        )
        axis.set_yticks(range(len(queries)), _readable(queries))
        axis.xaxis.tick_top()
        axis.tick_params(length=0, labelsize=9)
        axis.set_title(name, fontsize=10)
    figure.suptitle(title)
    return figure


def _readable(tokens: Sequence[str]) -> list[str]:
    return [token.replace("▁", " ").strip() or "␣" for token in tokens]


def cost_curves(
    series: Mapping[str, Sequence[tuple[int, float]]], title: str, label: str
) -> Figure:
    """A line for each name on logarithmic axes, the first in black.

    Args:
        series: points (length in tokens, value) by name.
        title: above it.
        label: of the values, with their unit.
    """
    ticks = sorted({length for points in series.values() for length, _ in points})
    figure, axes = _lines(series, title, "n, tokens", label, first="black")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    return figure


def length_curves(
    series: Mapping[str, Sequence[float]], words: Sequence[str], counts: Sequence[int], score: str
) -> Figure:
    """A line for each name: a score against the source's length.

    Args:
        series: a value for each bin, by name.
        words: what each bin holds, as `LengthBin.words`.
        counts: sources in each bin.
        score: what the values are.
    """
    points = {name: list(enumerate(values)) for name, values in series.items()}
    across = "words of the source; sentences of that length"
    figure, axes = _lines(points, f"{score} by source length", across, score)
    ticks = [f"{bin_words}\n{count:,}" for bin_words, count in zip(words, counts, strict=True)]
    axes.set_xticks(range(len(words)), ticks)
    return figure


def _lines(
    series: Mapping[str, Sequence[tuple[int, float]]], title: str, x: str, y: str, first: str = "C0"
) -> tuple[Figure, Axes]:
    colors = [first, *(f"C{number}" for number in range(first == "C0", 10))]
    figure = Figure(figsize=(8, 5.5), layout="constrained")
    axes = figure.subplots()
    for number, (name, points) in enumerate(series.items()):
        style = ("-" if number < 10 else "--") + _MARKERS[number % len(_MARKERS)]
        axes.plot(
            *zip(*points, strict=True), style, color=colors[number % len(colors)], ms=4, label=name
        )
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.grid(True, which="both", alpha=0.2)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return figure, axes


def save(figure: Figure, path: Path) -> Path:
    """Writes a figure as the suffix says (png, pdf, svg), whole or not at all; makes its directory.

    Raises:
        UserError: where it cannot be written, or matplotlib knows no such suffix.
    """
    drawn = io.BytesIO()
    try:
        figure.savefig(drawn, format=path.suffix[1:] or "png", dpi=150)
    except ValueError as error:
        raise UserError(f"cannot draw to {path}: {error}") from error
    with file_faults("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, drawn.getvalue())
    return path
