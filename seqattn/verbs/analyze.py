"""Where a bundle's attention looks in one sentence, or in one question."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from seqattn.analysis.plots import save
from seqattn.errors import UserError
from seqattn.storage import user_path
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
        if bundle.asks and not (question.strip() and context.strip()):
            raise UserError(
                'a question needs its context: question="Who runs?" context="A dog runs."'
            )
        if bundle.asks and text:
            raise UserError("this bundle takes a question with its context, not text=...")
        if not bundle.asks and (question or context):
            raise UserError("this bundle takes text=..., not a question; leave it out")
        look = bundle.look(question or text, context, self.target, self.heads)
        print(*look.lines, sep="\n")
        folder = user_path(self.output)
        pictures = [
            save(figure, folder / f"{name}.{self.format}") for name, figure in look.figures.items()
        ]
        said = " ".join(map(str, pictures)) or "none, there are no weights to show"
        print(f"pictures:  {said}", flush=True)
        return pictures
