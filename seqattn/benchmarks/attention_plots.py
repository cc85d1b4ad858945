"""Two pictures of what attention costs: time and memory against the length."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from seqattn.benchmarks.attention import Cost


def plot_costs(costs: Sequence[Cost], directory: Path, stem: str, title: str) -> list[Path]:
    """Draws time and memory against n on logarithmic axes.

    Args:
        costs: of all contestants.
        directory: where the pictures go; made if need be.
        stem: what their names begin with.
        title: above each.

    Returns:
        The files: STEM_time.png and STEM_memory.png.
    """
    directory.mkdir(parents=True, exist_ok=True)
    time = {cost: cost.seconds.median * 1e3 for cost in costs}
    memory = {cost: cost.bytes / 1e6 for cost in costs}
    return [
        _plot(time, directory / f"{stem}_time.png", title, "time, ms"),
        _plot(memory, directory / f"{stem}_memory.png", title, "peak memory beside the inputs, MB"),
    ]


_MARKS = "osD^v<>phX*"


def _plot(values: dict[Cost, float], path: Path, title: str, label: str) -> Path:
    figure = Figure(figsize=(8, 5.5), layout="constrained")
    axes = figure.subplots()
    names = list(dict.fromkeys(cost.name for cost in values))
    for number, name in enumerate(names):
        points = [(cost.length, value) for cost, value in values.items() if cost.name == name]
        lengths, heights = zip(*points, strict=True)
        style = "-" if number < 10 else "--"
        axes.plot(
            lengths, heights, style, marker=_MARKS[number % len(_MARKS)], label=name,
            color="black" if number == 0 else f"C{(number - 1) % 10}", markersize=4,
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ticks = sorted({cost.length for cost in values})
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.set_xlabel("n, tokens")
    axes.set_ylabel(label)
    axes.set_title(title)
    axes.grid(True, which="both", alpha=0.2)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    figure.savefig(path, dpi=150)
    return path
