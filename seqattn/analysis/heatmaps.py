"""Where a model looks in one sentence, or in one question: heatmaps, and the words it aligns."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor

from seqattn.analysis.capture import capture
from seqattn.analysis.plots import heatmap
from seqattn.models.base import Seq2SeqModel
from seqattn.models.span_base import SpanInput, SpanModel
from seqattn.tokens import BOS

_BEGINS = "▁"
"""What sentencepiece puts before a word."""
VIEWS = ("cross", "encoder", "decoder")


class Sentence(NamedTuple):
    """Ids of one side and the piece of text that each stands for."""

    ids: Sequence[int]
    pieces: Sequence[str]


class WordAlignment(NamedTuple):
    """The words of both sides, and for each target word the source word that it looked at most."""

    source: list[str]
    target: list[str]
    links: list[int]

    def pharaoh(self) -> str:
        """As alignment tools write it: source-target pairs from 0, in target order."""
        return " ".join(f"{i}-{j}" for j, i in enumerate(self.links))


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
    slots = {
        "cross": (r"decoder\..*cross_attention", target.pieces, source.pieces),
        "encoder": (r"encoder\..*self_attention", source.pieces, source.pieces),
        "decoder": (r"decoder\..*self_attention", target.pieces, ["<s>", *target.pieces[:-1]]),
    }
    figures, alignment = {}, None
    for view, (pattern, queries, keys) in slots.items():
        names = [name for name, calls in maps.items() if calls and re.fullmatch(pattern, name)]
        layers = [maps[name][0][0].mean(dim=0) for name in names]
        if layers and view in only:
            panels = {f"layer {number}": weights for number, weights in enumerate(layers, 1)}
            figures[view] = heatmap(panels, queries, keys, f"{view} attention, mean of heads")
        if layers and view == "cross":
            alignment = align(layers[-2:][0], source.pieces, target.pieces)
    return Heatmaps(figures, alignment)


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
    weights = maps["question_attention"][0][0].mean(dim=0)[rows, : len(question.ids)]
    title = "attention from the context to the question, mean of heads"
    return heatmap({"": weights}, context.pieces[rows], question.pieces, title)


def align(
    weights: Tensor, source_pieces: Sequence[str], target_pieces: Sequence[str]
) -> WordAlignment:
    """Aligns each target word with the source word that gets most of its attention.

    A source word has the weights of its pieces together, a target word the mean of its pieces'.
    The end mark is no word, and a target word never aligns with it.

    Args:
        weights: (T, S) of cross-attention, a row for each target piece.
        source_pieces: S.
        target_pieces: T.
    """
    source, target = _words(source_pieces), _words(target_pieces)
    columns = torch.stack([weights[:, places].sum(dim=1) for _, places in source], dim=1)
    links = [int(columns[places].mean(dim=0).argmax()) for _, places in target]
    return WordAlignment([word for word, _ in source], [word for word, _ in target], links)


def _words(pieces: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Words with the places of their pieces, marks such as </s> left out."""
    words: list[tuple[str, list[int]]] = []
    for place, piece in enumerate(pieces):
        if piece.startswith("<") and piece.endswith(">"):
            continue
        if piece.startswith(_BEGINS) or not words:
            words.append((piece.removeprefix(_BEGINS), [place]))
        else:
            word, places = words[-1]
            words[-1] = (word + piece, [*places, place])
    return words
