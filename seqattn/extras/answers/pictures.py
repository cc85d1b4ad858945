"""Plots of a bundle's attention in a question."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor

from seqattn.analysis.capture import capture
from seqattn.errors import UserError
from seqattn.extras.answers.bundles import AnsweringBundle, SpanBundle
from seqattn.extras.answers.span_base import SpanInput, SpanModel
from seqattn.extras.answers.span_batch import Questions, SpanBatch
from seqattn.extras.answers.span_text import cut_words
from seqattn.extras.pictures.base import Look, Pictures
from seqattn.extras.pictures.health import ForwardPass, Sides
from seqattn.extras.pictures.heatmaps import Sentence, draw_layers
from seqattn.extras.pictures.texts import TextPictures
from seqattn.generation.base import inference
from seqattn.tokens import PAD


@dataclass(frozen=True)
class QuestionPictures(Pictures):
    """Pictures of a bundle that answers questions by spans."""

    bundle: SpanBundle

    def look(self, text: str, context: str, target: str | None, heads: bool) -> Look:
        if target is not None:
            raise UserError("this bundle answers with spans and generates no text; remove target")
        best = self.bundle.answer(text, context)[0].best or "(no answer)"
        lines = [f"question:  {text}", f"answer:    {best}"]
        return Look(lines, draw_question(self.bundle, text, context, heads))

    def sample(self, rows: Questions, numbers: Sequence[int]) -> Figure | None:
        return draw_question(self.bundle, rows.sources[0], rows.contexts[0]).get("question")

    def forward_pass(self, batch: SpanBatch, device: torch.device) -> ForwardPass:
        return pass_over_questions(self.bundle.model, batch.to(device))


@dataclass(frozen=True)
class AnswerPictures(TextPictures):
    """Pictures of a bundle that generates answers."""

    bundle: AnsweringBundle

    def look(self, text: str, context: str, target: str | None, heads: bool) -> Look:
        return super().look(self.bundle.source_of(text, context), "", target, heads)


def draw_question(
    bundle: SpanBundle, question: str, context: str, heads: bool = False
) -> dict[str, Figure]:
    """Draw heatmaps of one question on its context; see `question_heatmaps`."""
    encoder, pieces = bundle.encoder, bundle.tokenizer.source_pieces
    batches = list(encoder([question], [context]))
    question_ids = batches[0].question[0].tolist()
    context_ids = encoder.reader.context(context).ids.tolist()
    names = pieces(context_ids, cut_words(context).text)
    windows = [
        Sentence(context_ids[first : first + size], names[first : first + size])
        for batch in batches
        for first, size in zip(batch.offset.tolist(), (batch.context != PAD).sum(1), strict=True)
    ]
    device = next(bundle.model.parameters()).device
    return question_heatmaps(
        bundle.model,
        Sentence(question_ids, pieces(question_ids, cut_words(question).text)),
        windows,
        (batch.to(device) for batch in batches),
        heads,
    )


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
    question_weights = weights[row][:, rows, : len(question.ids)]
    title = "attention from the context to the question"
    sides = ("context", context.pieces[rows]), ("question", question.pieces)
    return draw_layers("question", title, {"": question_weights}, *sides, heads)


def pass_over_questions(model: SpanModel, batch: SpanInput) -> ForwardPass:
    """Return a forward pass of a span model, with the tokens on both sides of each attention."""
    question, context = batch.question, batch.context
    sides = {
        "encoder.*": [Sides(question, question), Sides(context, context)],
        "reader.*": [Sides(context, context)],
        "question_attention": [Sides(context, question)],
    }
    return ForwardPass(partial(model, batch), sides)
