"""Heatmaps of the attention that a model pays over one sentence, or one question."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from matplotlib.figure import Figure

from seqattn.analysis.alignment import WordAlignment, align
from seqattn.analysis.capture import capture
from seqattn.analysis.plots import heatmap, mean_over_heads
from seqattn.models.base import Seq2SeqModel
from seqattn.models.span_base import SpanInput, SpanModel
from seqattn.tokens import BOS


class Sentence(NamedTuple):
    """Ids of one side and the piece of text that each stands for."""

    ids: Sequence[int]
    pieces: Sequence[str]


VIEWS = ("cross", "encoder", "decoder")


class Heatmaps(NamedTuple):
    """Figures by their view, of those that the model has, and the alignment if it implies one."""

    figures: dict[str, Figure]
    alignment: WordAlignment | None


def attention_heatmaps(
    model: Seq2SeqModel, source: Sentence, target: Sentence, only: Sequence[str] = VIEWS
) -> Heatmaps:
    """Heatmaps of every layer, heads averaged, as the model reads `source` and predicts `target`.

    Rows of cross-attention and of the decoder's own are the predicted tokens, so that a row shows
    where the model looked to predict that token.

    Args:
        model: in eval mode.
        source: ids and pieces, end included.
        target: ids and pieces, end included.
        only: which of `VIEWS` to draw.

    Returns:
        The figures, and the alignment of the last layer but one (where Garg et al. 2019, arXiv
        1909.02074, found the best), or of the only one.
    """
    device = next(model.parameters()).device
    source_ids = torch.tensor([list(source.ids)], device=device)
    target_ids = torch.tensor([[BOS, *target.ids[:-1]]], device=device)
    with torch.no_grad(), capture(model) as maps:
        model(source_ids, target_ids)
    read = ["<s>", *target.pieces[:-1]]
    views = {
        "cross": ("decoder.", "cross_attention", target.pieces, source.pieces),
        "encoder": ("encoder.", "self_attention", source.pieces, source.pieces),
        "decoder": ("decoder.", "self_attention", target.pieces, read),
    }
    layers = {
        view: [
            mean_over_heads(calls[0])
            for name, calls in maps.items()
            if calls and name.startswith(stack) and name.endswith(slot)
        ]
        for view, (stack, slot, _, _) in views.items()
    }
    figures = {}
    for view in only:
        panels = {f"layer {number}": weights for number, weights in enumerate(layers[view], 1)}
        if panels:
            title = f"{view} attention, mean of heads"
            figures[view] = heatmap(panels, *views[view][2:], title)
    cross = layers["cross"][-2:]  # the last but one comes first, or the only one
    return Heatmaps(figures, align(cross[0], source.pieces, target.pieces) if cross else None)


def question_heatmap(
    model: SpanModel, question: Sentence, context: Sentence, batch: SpanInput, most: int = 40
) -> Figure | None:
    """Heatmap of the attention from a context, down the side, to a question, heads averaged.

    Args:
        model: in training or eval mode, which it keeps.
        question: ids and pieces, end included.
        context: ids and pieces of the whole window.
        batch: the same as the model reads them, one row, on its device.
        most: tokens of the context that are shown, around the most likely start of the answer.

    Returns:
        The figure; None where the attention has no weights.
    """
    training = model.training
    model.eval()
    with torch.no_grad(), capture(model) as maps:
        scores = model(batch)
    model.train(training)
    if "question_attention" not in maps:
        return None
    peak = int(scores.start[0, : len(context.ids)].argmax())
    first = max(0, min(peak - most // 2, len(context.ids) - most))
    rows = slice(first, min(first + most, len(context.ids)))
    weights = mean_over_heads(maps["question_attention"][0])[rows, : len(question.ids)]
    title = "attention from the context to the question, mean of heads"
    return heatmap({"": weights}, context.pieces[rows], question.pieces, title)
