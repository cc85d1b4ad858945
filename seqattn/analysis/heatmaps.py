"""Attention heatmaps and word alignment of one sentence or question."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from matplotlib.figure import Figure
from torch import Tensor

from seqattn.analysis.capture import capture, place_of
from seqattn.analysis.pairs import Pair, observed
from seqattn.analysis.plots import heatmap
from seqattn.analysis.word_alignment import PLAIN, AlignmentReading, WordAlignment, align, aligning
from seqattn.generation.base import inference
from seqattn.models.base import Seq2SeqModel
from seqattn.models.span_base import SpanInput, SpanModel

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
    before = (f"previous {said}", ["<s>", *target.pieces[:-1]])
    slots = {"cross": (predicted, read), "encoder": (read, read), "decoder": (predicted, before)}
    heatmaps, alignment = Heatmaps({}, [], None), None
    for view, (queries, keys) in slots.items():
        names = [name for name, calls in maps.items() if calls and place_of(name)[0] == view]
        layers = {_layer(name): maps[name][0][0] for name in names}
        if view in only and any(place_of(name)[0] == view for name in maps.without):
            heatmaps.without.append(view)
        if layers and view in only:
            rows, columns = ((name, pieces[:most]) for name, pieces in (queries, keys))
            shown = {name: weights[:, :most, :most] for name, weights in layers.items()}
            heatmaps.figures.update(_drawn(view, f"{view} attention", shown, rows, columns, heads))
        if layers and view == "cross" and len(source.ids) > 1:  # the source is not empty
            weights = aligning([*layers.values()], reading)
            alignment = align(weights, source.pieces, target.pieces)
    return heatmaps._replace(alignment=alignment)


def question_heatmaps(
    model: SpanModel,
    question: Sentence,
    windows: Sequence[Sentence],
    batches: Iterable[SpanInput],
    heads: bool = False,
    most: int = 40,
) -> dict[str, Figure]:
    """Draw heatmaps of the attention from a context (rows) to a question (columns).

    Args:
        model: in training or eval mode, restored afterwards.
        question: ids and pieces, end included.
        windows: ids and pieces of the context's windows; the window with the most probable start
            of an answer is drawn.
        batches: model inputs of the windows, one row each, on the model's device.
        heads: also draw the heads side by side.
        most: maximum tokens of the context shown, around the most probable start of the answer.

    Returns:
        "question", averaged over heads, and "question_heads"; empty if the attention has no
        weights.
    """
    likely: list[Tensor] = []
    weights: list[Tensor] = []
    with inference(model):
        for batch in batches:
            with capture(model) as maps:
                start = model(batch).start
            likely += start[:, :-1] - start[:, -1:]  # relative to no answer in that window
            weights += [one for call in maps.get("question_attention", []) for one in call]
    if not weights:
        return {}
    row = max(range(len(likely)), key=lambda number: float(likely[number].max()))
    peak, context = int(likely[row].argmax()), windows[row]
    first = max(0, min(peak - most // 2, len(context.ids) - most))
    rows = slice(first, first + most)
    seen = weights[row][:, rows, : len(question.ids)]
    title = "attention from the context to the question"
    sides = ("context", context.pieces[rows]), ("question", question.pieces)
    return _drawn("question", title, {"": seen}, *sides, heads)


Side = tuple[str, Sequence[str]]


def _drawn(
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
        parts = {f"head {number}": one for number, one in enumerate(weights, 1)}
        name = f"{view}_heads{layer.replace('layer ', '_')}"
        figures[name] = heatmap(parts, *labels, ", ".join(filter(None, (title, layer))), names)
    return figures


def _layer(name: str) -> str:
    """Return a panel's title for an attention: its layer, if any."""
    layer = place_of(name)[1]
    return "" if layer is None else f"layer {layer + 1}"
