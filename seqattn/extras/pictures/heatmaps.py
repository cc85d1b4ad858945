"""Attention heatmaps and word alignment of one sentence."""

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.figure import Figure
from torch import Tensor

from seqattn.analysis.capture import place_of
from seqattn.analysis.pairs import Pair, observed
from seqattn.analysis.word_alignment import PLAIN, AlignmentReading, WordAlignment, align, aligning
from seqattn.extras.pictures.plots import heatmap
from seqattn.models.base import Seq2SeqModel

VIEWS = ("cross", "encoder", "decoder")


class Sentence(NamedTuple):
    """Ids of one side and the piece of text for each."""

    ids: Sequence[int]
    pieces: Sequence[str]


class Heatmaps(NamedTuple):
    """Figures by name, the views for which there are no weights, and the alignment, if any.

    A view's figure is named after it; those of single layers' heads are like `cross_heads_1`.
    """

    figures: dict[str, Figure]
    without: list[str]
    alignment: WordAlignment | None


def attention_heatmaps(
    model: Seq2SeqModel,
    source: Sentence,
    target: Sentence,
    only: Sequence[str] = VIEWS,
    heads: bool = False,
    most: int | None = None,
    said: str = "output",
    reading: AlignmentReading = PLAIN,
) -> Heatmaps:
    """Draw heatmaps of every layer, averaged over heads, for `source` and its `target`.

    Rows of cross-attention and decoder self-attention are the predicted tokens: each row shows the
    attention that predicted its token.

    Args:
        model: in eval mode.
        source: ids and pieces, end included.
        target: ids and pieces, end included.
        only: which of `VIEWS` to draw.
        heads: also draw each layer's heads side by side.
        most: maximum tokens shown per side, from the first; None for all.
        said: label of the target.
        reading: how to read the word alignment.

    Returns:
        The figures and the word alignment.
    """
    maps = observed(model, Pair(source.ids, target.ids))
    read, predicted = ("source", source.pieces), (said, target.pieces)
    previous = (f"previous {said}", ["<s>", *target.pieces[:-1]])
    slots = {"cross": (predicted, read), "encoder": (read, read), "decoder": (predicted, previous)}
    heatmaps, alignment = Heatmaps({}, [], None), None
    for view, (queries, keys) in slots.items():
        names = [name for name, calls in maps.items() if calls and place_of(name)[0] == view]
        layers = {_layer(name): maps[name][0][0] for name in names}
        if view in only and any(place_of(name)[0] == view for name in maps.without):
            heatmaps.without.append(view)
        if layers and view in only:
            rows, columns = ((name, pieces[:most]) for name, pieces in (queries, keys))
            panels = {name: weights[:, :most, :most] for name, weights in layers.items()}
            figures = draw_layers(view, f"{view} attention", panels, rows, columns, heads)
            heatmaps.figures.update(figures)
        if layers and view == "cross" and len(source.ids) > 1:  # the source is not empty
            weights = aligning([*layers.values()], reading)
            alignment = align(weights, source.pieces, target.pieces)
    return heatmaps._replace(alignment=alignment)


Side = tuple[str, Sequence[str]]


def draw_layers(
    view: str, title: str, layers: dict[str, Tensor], queries: Side, keys: Side, heads: bool
) -> dict[str, Figure]:
    """Draw layers (H, T, S): a figure of their means over heads, and one per layer of its heads."""
    names, labels = (queries[0], keys[0]), (queries[1], keys[1])
    averaged = (
        f"{title}, mean over heads" if any(len(one) > 1 for one in layers.values()) else title
    )
    means = {layer: weights.mean(dim=0) for layer, weights in layers.items()}
    figures = {view: heatmap(means, *labels, averaged, names)}
    for layer, weights in layers.items():
        if not heads or len(weights) == 1:
            continue
        parts = {f"head {number}": head_weights for number, head_weights in enumerate(weights, 1)}
        name = f"{view}_heads{layer.replace('layer ', '_')}"
        figures[name] = heatmap(parts, *labels, ", ".join(filter(None, (title, layer))), names)
    return figures


def _layer(name: str) -> str:
    """Return a panel's title for an attention: its layer, if any."""
    layer = place_of(name)[1]
    return "" if layer is None else f"layer {layer + 1}"
