"""Plots of systems side by side: scores, curves with bands, quality against cost."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from seqattn.extras.pictures.plots import MARKERS

_DASHES = ("-", "--", ":", "-.")


class Point(NamedTuple):
    """A mean at an x position, and its interval, if it has one."""

    x: float
    mean: float
    low: float | None = None
    high: float | None = None


def interval_panels(
    panels: Mapping[str, Mapping[str, tuple[Point, Sequence[float]]]], title: str
) -> Figure:
    """Plot a row for each system: the mean, its interval as a bar, and each seed as a dot.

    Args:
        panels: for each metric, systems by name: the mean (its `x` is unused) and each seed.
        title: title of the figure.
    """
    num_rows = max(map(len, panels.values()))
    widest = max(len(name) for systems in panels.values() for name in systems)
    figure, axes = _panels(panels, 0.32 * num_rows + 1.4, 0.07 * widest, share=False)
    for axis, systems in zip(axes, panels.values(), strict=True):
        for row, (point, seeds) in enumerate(systems.values()):
            if point.low is not None and point.high is not None:
                axis.plot([point.low, point.high], [row, row], "-|", color="C0", lw=1.6, ms=9)
            face_color = "C0" if point.low is not None else "white"
            axis.plot([point.mean], [row], "D", color="C0", mfc=face_color, ms=7)
            if len(seeds) > 1:
                axis.plot(seeds, [row] * len(seeds), "o", color="black", mfc="white", ms=4)
        axis.set_yticks(range(len(systems)), list(systems), parse_math=False)
        axis.set_ylim(len(systems) - 0.5, -0.5)
        axis.margins(x=0.08)
    figure.suptitle(title)
    return figure


def band_panels(
    panels: Mapping[str, Mapping[str, Sequence[Point]]],
    title: str,
    across: str,
    ticks: Sequence[str] = (),
) -> Figure:
    """Plot a line for each system with its intervals as a band, in the same color in all panels.

    Args:
        panels: for each measurement, points by system.
        title: title of the figure.
        across: label of the x axis.
        ticks: labels of x = 0, 1, 2 and so on; empty for numbers.
    """
    names = list(dict.fromkeys(name for systems in panels.values() for name in systems))
    width = max(4.6, 0.85 * len(ticks))
    figure, axes = _panels(panels, 3.9, 0.09 * max(map(len, names)), width=width)
    lines = {}
    for axis, (measured, systems) in zip(axes, panels.items(), strict=True):
        for name, points in systems.items():
            number = names.index(name)
            color = f"C{number % 10}"
            style = _DASHES[number // 10 % 4] + MARKERS[number % len(MARKERS)]
            x = [point.x for point in points]
            (lines[name],) = axis.plot(x, [p.mean for p in points], style, color=color, ms=4)
            sure = [
                (p.x, p.low, p.high) for p in points if p.low is not None and p.high is not None
            ]
            if sure:
                axis.fill_between(*zip(*sure, strict=True), color=color, alpha=0.15, lw=0)  # type: ignore[arg-type]
        axis.set(title="", xlabel=across, ylabel=measured)
        if ticks:
            axis.set_xticks(range(len(ticks)), list(ticks))
    _legend(figure, lines)
    figure.suptitle(title)
    return figure


def cost_panels(
    panels: Mapping[str, Mapping[str, tuple[float, Point]]],
    title: str,
    quality: str,
    lower: bool = False,
) -> Figure:
    """Plot quality against cost, with the Pareto front joined by a line.

    Args:
        panels: for each cost (lower is better), systems by name: their cost and score.
        title: title of the figure.
        quality: name of the score.
        lower: True if a lower score is better.
    """
    names = list(dict.fromkeys(name for systems in panels.values() for name in systems))
    figure, axes = _panels(panels, 3.9, 0.09 * max(map(len, names)))
    lines = {}
    for axis, (cost, systems) in zip(axes, panels.items(), strict=True):
        for name, (x, point) in systems.items():
            number = names.index(name)
            marker, color = MARKERS[number % len(MARKERS)], f"C{number % 10}"
            if point.low is not None and point.high is not None:
                axis.plot([x, x], [point.low, point.high], "-", color=color, alpha=0.5)
            (lines[name],) = axis.plot([x], [point.mean], marker, color=color, ms=8)
        front = [systems[name] for name in pareto_front(systems, lower)]
        axis.plot([x for x, _ in front], [p.mean for _, p in front], "--", color="0.5", zorder=0)
        axis.set(title="", xlabel=cost, ylabel=quality)
        axis.xaxis.set_major_locator(MaxNLocator(4))
        axis.xaxis.set_major_formatter(lambda x, _: _short(x))
        axis.margins(0.12)
    _legend(figure, lines)
    figure.suptitle(title)
    return figure


def _short(number: float) -> str:
    """Format a number of an axis: 1.0542 M, 65.5 k, 4.23."""
    size, unit = next(((s, u) for s, u in ((1e6, " M"), (1e3, " k")) if number >= 10 * s), (1, ""))
    return f"{number / size:g}{unit}"


def pareto_front(systems: Mapping[str, tuple[float, Point]], lower: bool = False) -> list[str]:
    """Return the Pareto-optimal systems in cost and mean score, the cheapest first.

    Args:
        systems: cost and score of each.
        lower: True if a lower score is better.
    """
    front, best, sign = list[str](), (0.0, 0.0), -1 if lower else 1
    for name in sorted(systems, key=lambda name: (systems[name][0], -sign * systems[name][1].mean)):
        cost, mean = systems[name][0], sign * systems[name][1].mean
        if not front or mean > best[1] or (cost, mean) == best:
            best = cost, mean
            front.append(name)
    return front


def _panels(
    panels: Mapping[str, object],
    height: float,
    beside: float,
    share: bool = True,
    width: float = 4.6,
) -> tuple[Figure, list[Axes]]:
    """Create titled axes, two per row, and `beside` inches for one legend (`share`) or per axis."""
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    across = (width + (0 if share else beside)) * columns + (beside + 0.6 if share else 0)
    figure = Figure(figsize=(across, height * rows + 0.5), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for spare in axes[len(panels) :]:
        spare.remove()
    for axis, title in zip(axes, panels, strict=False):
        axis.set_title(title, fontsize=10, parse_math=False)
        axis.grid(True, alpha=0.2)
    return figure, axes[: len(panels)]


def _legend(figure: Figure, lines: Mapping[str, object]) -> None:
    words = [name.replace("$", r"\$") for name in lines]
    figure.legend(list(lines.values()), words, loc="outside right center", frameon=False)  # type: ignore[call-overload]
