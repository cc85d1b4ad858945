"""One sentence, or one question, under a model's attention."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from matplotlib.figure import Figure

from seqattn.analysis.alignment import WordAlignment, align
from seqattn.analysis.capture import capture
from seqattn.analysis.plots import heatmap, mean_heads
from seqattn.models.base import BOS, Seq2SeqModel
from seqattn.models.span import SpanInput, SpanModel


class Sentence(NamedTuple):
    """Ids of one side and what each stands for."""

    ids: Sequence[int]
    pieces: Sequence[str]


VIEWS = ("cross", "encoder", "decoder")


class Views(NamedTuple):
    """Figures by their view, those that the model has, and the word alignment if it shows one."""

    figures: dict[str, Figure]
    alignment: WordAlignment | None


def look(
    model: Seq2SeqModel, source: Sentence, target: Sentence, only: Sequence[str] = VIEWS
) -> Views:
    """Heatmaps of every layer, heads averaged, as the model reads `source` and says `target`.

    Rows of cross-attention and of the decoder's own are the tokens being said, so that a row shows
    where the model looked to say that token.

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
        "cross": ("cross_attention", "decoder.", target.pieces, source.pieces),
        "encoder": ("self_attention", "encoder.", source.pieces, source.pieces),
        "decoder": ("self_attention", "decoder.", target.pieces, read),
    }
    figures: dict[str, Figure] = {}
    crosses = [maps[name][0] for name in maps if name.endswith("cross_attention") and maps[name]]
    alignment = None
    if crosses:
        layer = mean_heads(crosses[max(0, len(crosses) - 2)])
        alignment = align(layer, source.pieces, target.pieces)
    for view in only:
        ending, beginning, queries, keys = views[view]
        names = [n for n in maps if n.startswith(beginning) and n.endswith(ending) and maps[n]]
        panels = {
            f"layer {layer}": mean_heads(maps[name][0]) for layer, name in enumerate(names, start=1)
        }
        if panels:
            figures[view] = heatmap(panels, queries, keys, f"{view} attention, mean of heads")
    return Views(figures, alignment)


def look_at_question(
    model: SpanModel, question: Sentence, context: Sentence, batch: SpanInput, most: int = 40
) -> Figure | None:
    """Heatmap of what each token of a context asks of the question, heads averaged.

    Args:
        model: of any mode, which it keeps.
        question: ids and pieces, end included.
        context: ids and pieces of the whole window.
        batch: the same as the model reads them, one row, on its device.
        most: tokens of the context that are shown: those around where the answer most likely
            starts.

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
    weights = mean_heads(maps["question_attention"][0])  # (S, Q)
    peak = int(scores.start[0, : len(context.ids)].argmax())
    first = max(0, min(peak - most // 2, len(context.ids) - most))
    rows = slice(first, min(first + most, len(context.ids)))
    panels = {"the context asks": weights[rows, : len(question.ids)]}
    title = "attention from the context to the question, mean of heads"
    return heatmap(panels, question.pieces, context.pieces, title)
