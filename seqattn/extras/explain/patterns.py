"""Pictures of what attentions see and of what positions do to scores, without a trained model."""

import math
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
from annotated_types import Ge, Le
from matplotlib.figure import Figure, SubFigure
from torch import Tensor

from seqattn.analysis.capture import capture
from seqattn.attention.base import Attention, Mixer
from seqattn.attention.masks import Mask
from seqattn.checking import Seed
from seqattn.errors import UserError
from seqattn.extras.pictures.plots import save
from seqattn.positions.base import Position, Stack
from seqattn.settings.choices import choices
from seqattn.settings.nodes import build
from seqattn.storage import user_path

_SHORT = {
    "window": 4, "global_tokens": 1, "sinks": 2, "stride": 7, "summary": 2, "block_size": 4,
    "random_blocks": 1, "bucket_size": 6, "rounds": 2,
}  # fmt: skip
"""Sizes for the short texts of a picture, of kernels that have them."""
_DIM, _HEADS = 256, 4
_SIDES = {
    "encoder": "Encoder: keys that each query sees, in both directions",
    "decoder": "Decoder: keys that each query sees, itself and the past only",
}
_COLUMNS = 7  # at most


@dataclass(frozen=True, kw_only=True)
class Patterns:
    """Pictures of attentions' patterns and of positions' scores.

    Args:
        output: directory of the pictures.
        attention: factory of an attention, or a list of them; None for all that are shipped, with
            sizes that suit a short text.
        position: factory of a position scheme; None for all that are shipped. If only one of both
            is given, only that picture is drawn.
        length: tokens of the text that attentions read.
        distance: greatest distance between query and key, in tokens, for positions.
        seed: seed of random inputs, blocks and tables.
    """

    output: str
    attention: Any = None
    position: Any = None
    length: Annotated[int, Ge(2), Le(512)] = 48
    distance: Annotated[int, Ge(1), Le(4096)] = 64
    seed: Seed = 0

    def run(self) -> list[Path]:
        """Draw, and return the files.

        Raises:
            UserError: if nothing has weights to draw.
        """
        figures = {}
        if self.attention is not None or self.position is None:
            figures["attentions.png"] = self._attentions()
        if self.position is not None or self.attention is None:
            figures["positions.png"] = self._positions()
        drawn = {
            user_path(self.output) / name: figure for name, figure in figures.items() if figure
        }
        for path, figure in drawn.items():
            print(f"written to {save(figure, path)}")
        return list(drawn)

    def _attentions(self) -> Figure | None:
        panels: dict[str, dict[str, Tensor]] = {side: {} for side in _SIDES}
        missing: dict[str, dict[str, list[str]]] = {side: {} for side in _SIDES}
        for name, make in _factories("attention", self.attention).items():
            torch.manual_seed(self.seed)
            own = self.attention is not None
            attention = (make if own else _short(make))(query_dim=_DIM, memory_dim=_DIM)
            label = name or getattr(attention, "name", type(attention).__name__)
            if not isinstance(attention, Attention) or not attention.abilities.weights:
                kind = isinstance(attention, Mixer)
                reason = "has no weights over keys" if kind else "is for recurrent models alone"
                print(f"{label}: no picture, as it {reason}")
                for side in _SIDES if kind else ():
                    missing[side].setdefault("no weights over keys", []).append(label)
                continue
            for side in _SIDES:
                if attention.abilities.fits(side):
                    panels[side][label] = self._pattern(attention.eval(), side == "decoder")
                else:
                    missing[side].setdefault(f"cannot be used in the {side}", []).append(label)
        shown = {side: patterns for side, patterns in panels.items() if patterns}
        if not shown and self.position is None:
            raise UserError("nothing to draw; choose an attention with weights over keys")
        notes = {
            side: "; ".join(f"{reason}: {', '.join(names)}" for reason, names in reasons.items())
            for side, reasons in missing.items()
        }
        return _grid({side: _grouped(one) for side, one in shown.items()}, notes) if shown else None

    @torch.no_grad()
    def _pattern(self, attention: Attention, causal: bool) -> Tensor:
        """Return the share of heads with a weight other than 0: (T, S)."""
        x, indices = torch.randn(1, self.length, _DIM), torch.arange(self.length)
        mask = Mask(indices, indices, causal=causal)
        position = Position(Stack(_DIM, attention.position_heads, bidirectional=not causal))
        with capture(attention) as maps:
            attention(x, attention.project(x), mask, position)
        [[weights], *_] = maps.values()
        return (weights[0] != 0).float().mean(dim=0)

    def _positions(self) -> Figure:
        curves = dict(
            self._curves(name or type(make(Stack(_DIM, _HEADS))).__name__, make)
            for name, make in _factories("position", self.position).items()
        )
        rows, columns = -(-len(curves) // 3), min(3, len(curves))
        figure = Figure(figsize=(4.2 * columns + 0.6, 2.9 * rows + 0.9), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).flat
        distances = range(-self.distance, self.distance + 1)
        for axis, (name, scores) in zip(axes, curves.items(), strict=False):
            for head, line in enumerate(scores, 1):
                label = f"head {head}" if len(scores) > 1 else "all heads"
                axis.plot(distances, line.tolist(), lw=1.3, label=label)
            axis.axvline(0, color="0.8", lw=0.8, zorder=0)
            axis.set_title(name, fontsize=11)
            axis.grid(True, alpha=0.2)
            axis.legend(fontsize=7, frameon=False, loc="best")
        for axis in list(axes)[len(curves) :]:
            axis.axis("off")
        figure.supxlabel("place of the key minus place of the query, in tokens", fontsize=10)
        figure.supylabel("score minus its mean", fontsize=10)
        figure.suptitle("What positions do to the score of a word with itself, before training")
        return figure

    @torch.no_grad()
    def _curves(self, name: str, make: Callable[..., Position]) -> tuple[str, Tensor]:
        """Return a title, and scores of a query in the middle by head: (H, 2 * distance + 1)."""
        torch.manual_seed(self.seed)
        indices = torch.arange(2 * self.distance + 1)
        added = "embed" in make(Stack(_DIM, _HEADS)).hooks
        heads = 1 if added else _HEADS  # heads would see parts of what is added
        scheme = make(Stack(_DIM, heads))
        tables = list(scheme.parameters())
        for table in tables:
            torch.nn.init.normal_(table, std=0.5)  # else T5's would be 0
        x = torch.zeros(_DIM) if added else torch.randn(_DIM)
        x = scheme.embed(x.expand(1, len(indices), -1), indices)
        layer = scheme.at_layer(0)
        q = x.unflatten(2, (heads, -1)).transpose(1, 2)  # (1, N, D) -> (1, H, N, Dh)
        rotated = layer.rotate(q, indices)
        scores = rotated @ rotated.mT * layer.score_scale(_DIM // heads)
        term = layer.score_term(rotated, rotated, indices, indices)
        scores = (scores if term is None else scores + term)[0, :, self.distance]
        scores = (scores - scores.mean(dim=1, keepdim=True)).round(decimals=4)
        return (f"{name} (random table)", scores[:2]) if tables else (name, scores)


def _factories(group: str, chosen: Any) -> Mapping[str, Callable[..., Any]]:
    """Return factories by name: all shipped ones, or the chosen ones under their numbers."""
    if chosen is None:
        return {name: build(node) for name, node in choices(group).items()}
    several = chosen if isinstance(chosen, list) else [chosen]
    return {"" if len(several) == 1 else f"{group} {n}": one for n, one in enumerate(several, 1)}


def _short(make: Callable[..., Any]) -> Callable[..., Any]:
    """Return the factory with sizes of its kernel that suit a short text."""
    kernel: Callable[..., Any] = getattr(make, "keywords", {}).get("kernel", dict)
    sizes = {k: size for k, size in _SHORT.items() if k in getattr(kernel, "keywords", {})}
    return partial(make, kernel=partial(kernel, **sizes)) if sizes else make


def _grouped(panels: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return each pattern once, under the names of all that have it, common ones first."""
    groups: list[tuple[Tensor, list[str]]] = []
    for name, pattern in panels.items():
        same = next((names for other, names in groups if torch.equal(other, pattern)), None)
        if same is None:
            groups.append((pattern, [name]))
        else:
            same.append(name)
    groups.sort(key=lambda group: -len(group[1]))
    return {", ".join(names): pattern for pattern, names in groups}


def _grid(sides: Mapping[str, Mapping[str, Tensor]], notes: Mapping[str, str]) -> Figure:
    """Draw the patterns (T, S) of each side, by name, with notes on what is not drawn."""
    num_panels = max(map(len, sides.values()))
    columns = math.ceil(num_panels / math.ceil(num_panels / _COLUMNS))
    rows = {side: math.ceil(len(panels) / columns) for side, panels in sides.items()}
    lines = {side: max(len(_title(name).splitlines()) for name in sides[side]) for side in sides}
    heights = [2.4 * rows[side] + 0.15 * lines[side] + 0.8 for side in sides]
    figure = Figure(figsize=(2.5 * columns + 1.2, sum(heights)), layout="constrained")
    parts = figure.subfigures(len(sides), 1, squeeze=False, height_ratios=heights)
    for part, (side, panels) in zip(parts.flat, sides.items(), strict=True):
        note = textwrap.fill(f"Not drawn: {notes[side]}", 34 * columns) if notes[side] else ""
        _draw(part, _SIDES[side], note, panels, rows[side], columns)
    return figure


def _title(names: str) -> str:
    return textwrap.fill(names, 34)


def _draw(
    figure: SubFigure,
    title: str,
    note: str,
    panels: Mapping[str, Tensor],
    rows: int,
    columns: int,
) -> None:
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis, (names, pattern) in zip(axes, panels.items(), strict=False):
        image = axis.imshow(pattern.numpy(), cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
        axis.set_title(_title(names), fontsize=8 if "," in names else 11)
        axis.tick_params(labelsize=7, length=2)
    for axis in axes[len(panels) :]:
        axis.axis("off")
    figure.suptitle(title, fontsize=13)
    figure.supxlabel(f"key\n{note}" if note else "key", fontsize=9)
    figure.supylabel("query", fontsize=10)
    bar = figure.colorbar(image, ax=axes, shrink=0.6 if rows > 1 else 1.0, aspect=25)
    bar.set_label("share of heads that see the key", fontsize=9)
