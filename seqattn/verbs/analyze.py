"""Where a bundle's attention looks in one sentence, or in one question."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from matplotlib.figure import Figure

from seqattn.analysis.plots import save
from seqattn.bundle.bundle import SpanBundle, TextBundle
from seqattn.bundle.pictures import draw_question, draw_text
from seqattn.data.reading import question_source
from seqattn.errors import UserError
from seqattn.storage import user_path
from seqattn.training.task_options import task_class
from seqattn.verbs.bundle_run import BundleRun


@dataclass(frozen=True, kw_only=True)
class Analysis(BundleRun):
    """Heatmaps of a bundle's attention, and the alignment of words that they imply.

    Args:
        bundle, device, trust: as `BundleRun`.
        output: the directory for the pictures.
        text: the sentence to look into.
        target: an output of one's own; None for the model's.
        question: in place of a text, for a bundle that answers questions.
        context: what the question is about.
        heads: a picture of each layer's heads, too.
        format: of the pictures.
    """

    output: str
    text: str | None = None
    target: str | None = None
    question: str | None = None
    context: str | None = None
    heads: bool = False
    format: Literal["png", "svg", "pdf"] = "png"

    def run(self) -> list[Path]:
        """Draws and prints; returns the pictures.

        Raises:
            UserError: where the bundle cannot be used, or there is nothing to look into.
        """
        bundle = self.load()
        question, context, text = self.question or "", self.context or "", self.text or ""
        asks = task_class(bundle.config).reads == "questions"
        if asks and not (question.strip() and context.strip()):
            raise UserError(
                'a question needs its context: question="Who runs?" context="A dog runs."'
            )
        if asks and text:
            raise UserError("this bundle takes a question with its context, not text=...")
        if isinstance(bundle, SpanBundle):
            if self.target is not None:
                raise UserError("this bundle answers by spans and writes nothing; leave target out")
            return self._question(bundle, question, context)
        if asks:
            return self._sentence(bundle, question_source(question, context))
        if question or context:
            raise UserError("this bundle takes text=..., not a question; leave it out")
        return self._sentence(bundle, text)

    def _sentence(self, bundle: TextBundle, text: str) -> list[Path]:
        output, said, window = self.target, "target", 0
        if output is None:
            best, window = bundle.best(text)
            [output], said = bundle.tokenizer.decode_target([best.ids]), "output"
        found = draw_text(bundle, text, output, heads=self.heads, said=said, window=window)
        print(f"source:    {text}\n{said}:    {output}")
        windows = len(bundle.encode([text])[0])
        if windows > 1:
            print(f"windows:   {windows}, of which the pictures show number {window + 1}")
        words = found.alignment
        if words is not None and words.links:
            pairs = zip(words.target, words.links, strict=True)
            links = ", ".join(f"{target} ← {words.source[place]}" for target, place in pairs)
            print(f"looked at: {links}\nalignment: {words.pharaoh()}")
        if found.without:
            print(f"no weights: {', '.join(found.without)} attention mixes without them")
        return self._saved(found.figures)

    def _question(self, bundle: SpanBundle, question: str, context: str) -> list[Path]:
        found = bundle.answer(question, context)[0]
        best = found.answers[0].text if found.answers else "(no answer)"
        print(f"question:  {question}\nanswer:    {best}")
        return self._saved(draw_question(bundle, question, context, self.heads))

    def _saved(self, figures: Mapping[str, Figure]) -> list[Path]:
        folder = user_path(self.output)
        pictures = [
            save(figure, folder / f"{name}.{self.format}") for name, figure in figures.items()
        ]
        said = " ".join(map(str, pictures)) or "none, there are no weights to show"
        print(f"pictures:  {said}", flush=True)
        return pictures
