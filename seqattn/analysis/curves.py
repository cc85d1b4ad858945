"""Curves of a measurement against the length."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

_MARKS = "osD^v<>phX*"


def curves(series: Mapping[str, Sequence[tuple[int, float]]], title: str, label: str) -> Figure:
    """A line for each name on logarithmic axes, the first in black.

    Args:
        series: points (length in tokens, value) by name.
        title: above it.
        label: of the values, with their unit.
    """
    figure = Figure(figsize=(8, 5.5), layout="constrained")
    axes = figure.subplots()
    for number, (name, points) in enumerate(series.items()):
        lengths, values = zip(*points, strict=True)
        axes.plot(
            lengths,
            values,
            "-" if number < 10 else "--",
            marker=_MARKS[number % len(_MARKS)],
            markersize=4,
            color="black" if number == 0 else f"C{(number - 1) % 10}",
            label=name,
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ticks = sorted({length for points in series.values() for length, _ in points})
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.set_xlabel("n, tokens")
    axes.set_ylabel(label)
    axes.set_title(title)
    axes.grid(True, which="both", alpha=0.2)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return figure
