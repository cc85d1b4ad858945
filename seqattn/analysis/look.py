"""One sentence under a model's attention."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from matplotlib.figure import Figure

from seqattn.analysis.capture import capture
from seqattn.analysis.plots import heatmap, mean_heads
from seqattn.models.base import BOS, Seq2SeqModel


class Sentence(NamedTuple):
    """Ids of one side and what each stands for."""

    ids: Sequence[int]
    pieces: Sequence[str]


VIEWS = ("cross", "encoder", "decoder")


def look(
    model: Seq2SeqModel, source: Sentence, target: Sentence, only: Sequence[str] = VIEWS
) -> dict[str, Figure]:
    """Heatmaps of every layer, heads averaged, as the model reads `source` and says `target`.

    Rows of cross-attention and of the decoder's own are the tokens being said, so that a row shows
    where the model looked to say that token.

    Args:
        model: in eval mode.
        source: ids and pieces, end included.
        target: ids and pieces, end included.
        only: which of `VIEWS` to draw.

    Returns:
        Figures by their view, those that the model has.
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
    figures = {}
    for view in only:
        ending, beginning, queries, keys = views[view]
        names = [n for n in maps if n.startswith(beginning) and n.endswith(ending) and maps[n]]
        panels = {
            f"layer {layer}": mean_heads(maps[name][0]) for layer, name in enumerate(names, start=1)
        }
        if panels:
            figures[view] = heatmap(panels, queries, keys, f"{view} attention, mean of heads")
    return figures
