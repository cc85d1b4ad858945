"""Plots of a bundle's attention in a text or a question."""

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.figure import Figure

from seqattn.analysis.heatmaps import (
    VIEWS,
    Heatmaps,
    Sentence,
    attention_heatmaps,
    question_heatmaps,
)
from seqattn.bundle.span_bundle import SpanBundle
from seqattn.bundle.text_bundle import TextBundle
from seqattn.data.span_text import cut_words
from seqattn.errors import UserError
from seqattn.tokens import PAD

_LONGEST = 400  # tokens per side; labels of thousands take minutes to draw


class Look(NamedTuple):
    """Lines of text about an input and its output, and figures of the attention by name."""

    lines: list[str]
    figures: dict[str, Figure]


def look_at_text(bundle: TextBundle, text: str, target: str | None, heads: bool) -> Look:
    """Draw heatmaps of a text and an output, and align their words; see `Bundle.look`."""
    output, said, window = target, "target", 0
    if output is None:
        best, window = bundle.best(text)
        [output], said = bundle.tokenizer.decode_target([best.ids]), "output"
    heatmaps = draw_text(bundle, text, output, heads=heads, said=said, window=window)
    lines = [f"source:    {text}", f"{said}:    {output}"]
    windows = len(bundle.encode([text])[0])
    if windows > 1:
        lines.append(f"windows:   {windows} (plotting number {window + 1})")
    words = heatmaps.alignment
    if words is not None and words.links:
        pairs = zip(words.target, words.links, strict=True)
        links = ", ".join(f"{target} ← {words.source[place]}" for target, place in pairs)
        lines += [f"attention: {links}", f"alignment: {words.pharaoh()}"]
    if heatmaps.without:
        lines.append(f"no weights: some layers of {' and '.join(heatmaps.without)} compute none")
    return Look(lines, heatmaps.figures)


def look_at_question(bundle: SpanBundle, question: str, context: str, heads: bool) -> Look:
    """Draw heatmaps of a question on its context; see `Bundle.look`."""
    best = bundle.answer(question, context)[0].best or "(no answer)"
    lines = [f"question:  {question}", f"answer:    {best}"]
    return Look(lines, draw_question(bundle, question, context, heads))


def draw_text(
    bundle: TextBundle,
    text: str,
    output: str,
    only: Sequence[str] = VIEWS,
    heads: bool = False,
    most: int | None = None,
    said: str = "output",
    window: int = 0,
) -> Heatmaps:
    """Draw heatmaps of a text, as the model reads it, and an output; see `attention_heatmaps`.

    For a text in several windows, `window` selects one by its number from 0.

    Raises:
        UserError: if the text is empty, or all tokens are requested and a figure cannot hold them.
    """
    if not text.strip():
        raise UserError('text is empty; set it, for example text="A dog runs."')
    tokenizer = bundle.tokenizer
    source, target = bundle.encode([text])[0][window], tokenizer.encode_target([output])[0]
    for name, ids in (("text", source), ("target", target)):
        if most is None and len(ids) > _LONGEST:
            raise UserError(
                f"{name} has {len(ids):,} tokens, but a plot shows at most {_LONGEST}; shorten it"
            )
    sides = (
        Sentence(source, tokenizer.source_pieces(source, None if window else text)),
        Sentence(target, tokenizer.target_pieces(target, output)),
    )
    return attention_heatmaps(bundle.model, *sides, only, heads, most, said, bundle.reading)


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
