"""Figures of attention weights and of measurements."""

import io
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib
from torch import Tensor

matplotlib.use("Agg")
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, fontManager, get_font

from seqattn.errors import UserError
from seqattn.storage import file_faults, user_path, write_whole

MARKERS = "osD^v<>phX*"
_FONTS = (
    "DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Micro Hei", "PingFang SC",
    "Microsoft YaHei", "Arial Unicode MS", "Noto Emoji", "Symbola", "Segoe UI Symbol",
)  # fmt: skip
_MARK = re.compile(r"<.*>")
_LONGEST_LABEL = 20
_BAR = 2.2  # inches, of the color bar


def heatmap(
    panels: Mapping[str, Tensor],
    queries: Sequence[str],
    keys: Sequence[str],
    title: str,
    sides: tuple[str, str] = ("", ""),
) -> Figure:
    """Draw weights as dark squares with tokens on the axes, and one scale for all panels.

    Args:
        panels: a title for each matrix of weights (T, S).
        queries: T tokens, down the side.
        keys: S tokens, along the top.
        title: title of the figure.
        sides: labels of queries and keys.

    Raises:
        ValueError: a matrix does not have one row per query and one column per key.
    """
    arrays = {name: weights.detach().float().cpu().numpy() for name, weights in panels.items()}
    for weights in arrays.values():
        if weights.shape != (len(queries), len(keys)):
            raise ValueError(
                f"{len(queries)} queries and {len(keys)} keys cannot label weights of shape "
                f"{weights.shape}"
            )
    down, across = _labels(queries), _labels(keys)
    square = 0.36 if len(keys) <= 40 else 0.22  # inches per square
    high = 0.30 if len(queries) <= 40 else 0.20
    width = max(2.4, square * len(keys)) + 0.08 * max(map(len, down)) + 0.4
    height = max(1.8, high * len(queries)) + 0.08 * max(map(len, across)) + 0.7
    rows = -(-len(panels) // max(1, int(18 / width)))
    columns = -(-len(panels) // rows)
    size = (max(columns * width + 0.9, 0.1 * len(title) + 0.5), rows * height + 0.5)
    figure = Figure(figsize=size, layout="constrained")
    axes = [figure.add_subplot(rows, columns, number + 1) for number in range(len(panels))]
    largest = max(max(float(weights.max()) for weights in arrays.values()), 1e-9)
    for axis, (name, weights) in zip(axes, arrays.items(), strict=True):
        image = axis.imshow(weights, cmap="Blues", vmin=0, vmax=largest, aspect="auto")
        _name_sides(axis, down, across)
        axis.set_title(name, fontsize=10)
        axis.set_xlabel(sides[1])
    for axis in axes[::columns]:
        axis.set_ylabel(sides[0])
    length = min(1.0, _BAR / (size[1] - 1.2))
    bar = figure.colorbar(image, ax=axes, shrink=length, aspect=14, anchor=(0.0, 1.0))
    bar.set_label("attention weight", fontsize=11)
    figure.suptitle(title)
    return figure


def _name_sides(axis: Axes, down: Sequence[str], across: Sequence[str]) -> None:
    """Put a label on each row and column."""
    text: Any = {"family": _families(), "parse_math": False}
    axis.set_xticks(
        range(len(across)), across, rotation=60, ha="left", rotation_mode="anchor", **text
    )
    axis.set_yticks(range(len(down)), down, **text)
    axis.xaxis.tick_top()
    axis.tick_params(length=0, labelsize=9)


def _labels(tokens: Sequence[str]) -> list[str]:
    """Return tokens, truncated; of pieces of words, those that continue one begin with a tie.

    Characters without a glyph in the available fonts are shown as code points.
    """
    if not any(token.startswith("▁") for token in tokens):
        return [_label(token) for token in tokens]
    tied = (
        (token[1:] or "␣")
        if token.startswith("▁")
        else token
        if index == 0 or _MARK.fullmatch(token)
        else f"‿{token}"
        for index, token in enumerate(tokens)
    )
    return [_label(token) for token in tied]


def _label(token: str) -> str:
    text = "".join(sign if ord(sign) in _glyphs() else f"U+{ord(sign):04X}" for sign in token)
    return text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 1] + "…"


@cache
def _families() -> list[str]:
    """Return the installed fonts among those for tokens."""
    installed = {font.name for font in fontManager.ttflist}
    return [name for name in _FONTS if name in installed]


@cache
def _glyphs() -> set[int]:
    """Return the characters that these fonts contain."""
    return {code for name in _families() for code in get_font(findfont(name)).get_charmap()}


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure atomically, creating directories; the suffix (png, pdf, svg) sets the format.

    Raises:
        UserError: it cannot be written, or matplotlib does not support the suffix.
    """
    buffer, path = io.BytesIO(), user_path(path)
    try:
        with matplotlib.rc_context({"svg.fonttype": "none", "pdf.fonttype": 42}):  # text as text
            figure.savefig(buffer, format=path.suffix[1:] or "png", dpi=_dots(figure))
    except ValueError as error:
        raise UserError(f"cannot write a figure to {path}: {error}") from error
    with file_faults("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, buffer.getvalue())
    return path


def _dots(figure: Figure) -> float:
    """Return the dots per inch: 150, or less to stay below 50 million pixels."""
    width, height = figure.get_size_inches()
    return min(150.0, float((5e7 / (width * height)) ** 0.5))
