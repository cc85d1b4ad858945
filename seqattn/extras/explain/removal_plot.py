"""Plot of probability under removal of tokens."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from seqattn.extras.pictures.plots import MARKERS


def removal_curves(
    panels: Mapping[str, Mapping[str, Sequence[float]]], percents: Sequence[int]
) -> Figure:
    """Plot a token's probability by method as source tokens are removed or retained.

    Args:
        panels: a value per percent for each method, by panel title; two panels per row.
        percents: percentages of the source's tokens.
    """
    rows = -(-len(panels) // 2)
    figure = Figure(figsize=(11, 3.6 * rows + 0.4), layout="constrained")
    axes = figure.subplots(rows, 2, squeeze=False, sharex=True, sharey=True).flat
    names = list(dict.fromkeys(method for methods in panels.values() for method in methods))
    lines = {}
    for axis, (title, methods) in zip(axes, panels.items(), strict=True):
        for method, values in methods.items():
            number = names.index(method)
            style = ("-" if number < 10 else "--") + MARKERS[number % len(MARKERS)]
            (lines[method],) = axis.plot(values, style, color=f"C{number % 10}", ms=4)
        axis.set(title=title, xlabel="% of source tokens", ylabel="probability", ylim=(0, 1))
        axis.set_xticks(range(len(percents)), [str(percent) for percent in percents])
        axis.grid(True, alpha=0.2)
    figure.legend([lines[name] for name in names], names, loc="outside right center", frameon=False)
    return figure
