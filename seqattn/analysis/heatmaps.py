"""Where a model looks in one sentence, or in one question: heatmaps, and the words it aligns."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from matplotlib.figure import Figure
from torch import Tensor

from seqattn.analysis.capture import capture, place_of
from seqattn.analysis.pairs import Pair, observed
from seqattn.analysis.plots import heatmap
from seqattn.analysis.word_alignment import WordAlignment, align, aligning
from seqattn.generation.base import inference
from seqattn.models.base import Seq2SeqModel
from seqattn.models.span_base import SpanInput, SpanModel

VIEWS = ("cross", "encoder", "decoder")


class Sentence(NamedTuple):
    """Ids of one side and the piece of text that each stands for."""

    ids: Sequence[int]
    pieces: Sequence[str]


class Heatmaps(NamedTuple):
    """Figures by their names, the views without weights, and the alignment if there is one.

    A view's figure has its name; those of its heads are `cross_heads_1` for layer 1, and so on.
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
) -> Heatmaps:
    """Heatmaps of every layer, heads averaged, as the model reads `source` and predicts `target`.

    Rows of cross-attention and of the decoder's own are the predicted tokens, so that a row shows
    where the model looked to predict that token.

    Args:
        model: in eval mode.
        source: ids and pieces, end included.
        target: ids and pieces, end included.
        only: which of `VIEWS` to draw.
        heads: draw each layer's heads beside each other, too.
        most: tokens of a side that are shown, the first ones; None for all.
        said: what the target is, for the labels.

    Returns:
        The figures, and the alignment by `aligning`.
    """
    maps = observed(model, Pair(source.ids, target.ids))
    read, predicted = ("source", source.pieces), (said, target.pieces)
    before = (f"{said} before it", ["<s>", *target.pieces[:-1]])
    slots = {"cross": (predicted, read), "encoder": (read, read), "decoder": (predicted, before)}
    found, alignment = Heatmaps({}, [], None), None
    for view, (queries, keys) in slots.items():
        names = [name for name, calls in maps.items() if calls and place_of(name)[0] == view]
        layers = {_layer(name): maps[name][0][0] for name in names}
        if view in only and any(place_of(name)[0] == view for name in maps.without):
            found.without.append(view)
        if layers and view in only:
            rows, columns = ((name, pieces[:most]) for name, pieces in (queries, keys))
            shown = {name: weights[:, :most, :most] for name, weights in layers.items()}
            found.figures.update(_drawn(view, f"{view} attention", shown, rows, columns, heads))
        if layers and view == "cross" and len(source.ids) > 1:  # some source to be aligned with
            alignment = align(aligning([*layers.values()]), source.pieces, target.pieces)
    return found._replace(alignment=alignment)


def question_heatmaps(
    model: SpanModel,
    question: Sentence,
    windows: Sequence[Sentence],
    batches: Iterable[SpanInput],
    heads: bool = False,
    most: int = 40,
) -> dict[str, Figure]:
    """Heatmaps of the attention from a context, down the side, to a question.

    Args:
        model: in training or eval mode, which it keeps.
        question: ids and pieces, end included.
        windows: ids and pieces of the context, in windows; the one is drawn where an answer is
            likeliest to start.
        batches: the same as the model reads them, a row for each window, on its device.
        heads: draw the heads beside each other, too.
        most: tokens of the context that are shown, around the likeliest start of the answer.

    Returns:
        "question", heads averaged, and "question_heads"; nothing where the attention has no
        weights.
    """
    likely: list[Tensor] = []
    weights: list[Tensor] = []
    with inference(model):
        for batch in batches:
            with capture(model) as maps:
                start = model(batch).start
            likely += start[:, :-1] - start[:, -1:]  # against no answer in that window
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
    """Figures of layers (H, T, S): of all with their heads averaged, and of each one's heads."""
    names, labels = (queries[0], keys[0]), (queries[1], keys[1])
    averaged = f"{title}, mean of heads" if any(len(one) > 1 for one in layers.values()) else title
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
    """What a panel says of an attention: its layer, where it is of one."""
    layer = place_of(name)[1]
    return "" if layer is None else f"layer {layer + 1}"
