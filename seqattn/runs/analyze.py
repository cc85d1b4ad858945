"""Where a bundle's attention looks in one sentence, or in one question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from seqattn.analysis.heatmaps import (
    VIEWS,
    Heatmaps,
    Sentence,
    attention_heatmaps,
    question_heatmap,
)
from seqattn.analysis.plots import save
from seqattn.bundle.bundle import SpanBundle, TextBundle
from seqattn.checking import checked
from seqattn.errors import UserError
from seqattn.runs.bundle_run import BundleRun

_LONGEST = 400  # tokens of a side; labels of thousands take minutes to draw


@checked
@dataclass(frozen=True, kw_only=True)
class Analysis(BundleRun):
    """Heatmaps of a bundle's attention, and the alignment of words that they imply.

    Args:
        bundle, device, trust: as `BundleRun`.
        output: the directory for the pictures.
        text: the sentence to look into.
        target: an output of one's own; None for the model's.
        question: in place of a text, for a bundle that answers by spans.
        context: what the question is about.
    """

    output: str
    text: str | None = None
    target: str | None = None
    question: str | None = None
    context: str | None = None

    def run(self) -> list[Path]:
        """Draws and prints; returns the pictures.

        Raises:
            UserError: where the bundle cannot be used, or there is nothing to look into.
        """
        bundle = self.load()
        question, context, text = self.question or "", self.context or "", self.text or ""
        if isinstance(bundle, SpanBundle):
            if not (question.strip() and context.strip()):
                raise UserError(
                    'a question needs its context: question="Who runs?" context="A dog runs."'
                )
            return self._question(bundle, question, context)
        if question or context:
            raise UserError("this bundle takes text=..., not a question; leave it out")
        if not text.strip():
            raise UserError('text must hold some words: text="A dog runs."')
        return self._sentence(bundle, text)

    def _sentence(self, bundle: TextBundle, text: str) -> list[Path]:
        source = _drawable("text", bundle.tokenizer.encode_source([text])[0])
        output = bundle.generate(text) if self.target is None else self.target
        target = _drawable("target", bundle.tokenizer.encode_target([output])[0])
        found = draw_text(bundle, source, target)
        print(f"source:    {text}\noutput:    {output}")
        words = found.alignment
        if words is not None:
            pairs = zip(words.target, words.links, strict=True)
            links = ", ".join(f"{target} ← {words.source[place]}" for target, place in pairs)
            print(f"looked at: {links}\nalignment: {words.pharaoh()}")
        folder = Path(self.output).expanduser()
        pictures = [save(figure, folder / f"{name}.png") for name, figure in found.figures.items()]
        print(f"pictures:  {' '.join(map(str, pictures))}", flush=True)
        return pictures

    def _question(self, bundle: SpanBundle, question: str, context: str) -> list[Path]:
        found = bundle.answer(question, context)[0]
        best = found.answers[0].text if found.answers else "(no answer)"
        print(f"question:  {question}\nanswer:    {best}")
        figure = draw_question(bundle, question, context)
        if figure is None:
            return []
        picture = save(figure, Path(self.output).expanduser() / "question.png")
        print(f"picture:   {picture}", flush=True)
        return [picture]


def draw_text(
    bundle: TextBundle, source: Sequence[int], target: Sequence[int], only: Sequence[str] = VIEWS
) -> Heatmaps:
    """Heatmaps of the ids of a source and its output; see `attention_heatmaps`."""
    tokenizer = bundle.tokenizer
    sides = (
        Sentence(source, tokenizer.source_pieces(source)),
        Sentence(target, tokenizer.target_pieces(target)),
    )
    return attention_heatmaps(bundle.model, *sides, only)


def draw_question(bundle: SpanBundle, question: str, context: str) -> Figure | None:
    """Heatmap of one question on the first window of its context; None without weights to show."""
    batch = next(bundle.encoder([question], [context]))
    pieces = bundle.tokenizer.source_pieces
    asked, read = (batch.question[0].tolist(), batch.context[0].tolist())
    return question_heatmap(
        bundle.model,
        Sentence(asked, pieces(asked)),
        Sentence(read, pieces(read)),
        batch.to(next(bundle.model.parameters()).device),
    )


def _drawable(name: str, ids: list[int]) -> list[int]:
    if len(ids) > _LONGEST:
        raise UserError(
            f"{name} has {len(ids):,} tokens and a picture shows at most {_LONGEST}; shorten it"
        )
    return ids
