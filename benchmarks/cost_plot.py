"""Plot of costs by length."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from seqattn.extras.pictures.plots import MARKERS


def cost_curves(
    series: Mapping[str, Sequence[tuple[int, float]]], title: str, label: str
) -> Figure:
    """Plot a line for each name on logarithmic axes, the first in black.

    Args:
        series: points (length in tokens, value) by name.
        title: title of the plot.
        label: label of the values, with their unit.
    """
    ticks = sorted({length for points in series.values() for length, _ in points})
    figure = Figure(figsize=(8, 5.5), layout="constrained")
    axes = figure.subplots()
    for number, (name, points) in enumerate(series.items()):
        style = ("-" if number < 10 else "--") + MARKERS[number % len(MARKERS)]
        color = f"C{(number - 1) % 10}" if number else "black"
        axes.plot(*zip(*points, strict=True), style, color=color, ms=4, label=name)
    axes.set(title=title, xlabel="n (tokens)", ylabel=label, yscale="log")
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.grid(True, which="both", alpha=0.2)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return figure
