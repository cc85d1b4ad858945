"""Heatmaps of a bundle's attention in one sentence or question."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from seqattn.errors import UserError
from seqattn.extras.pictures.of_bundle import pictures_of
from seqattn.extras.pictures.plots import save
from seqattn.storage import user_path
from seqattn.subcommands.bundle_run import BundleRun, check_read


@dataclass(frozen=True, kw_only=True)
class Analysis(BundleRun):
    """Heatmaps of a bundle's attention, and the word alignment that they imply.

    Args:
        bundle, device, trust: as `BundleRun`.
        output: directory for the figures.
        text: the sentence to analyze.
        target: an output to use in place of the model's; None for the model's.
        question: replaces the text, for a bundle that answers questions.
        context: context of the question.
        heads: True to draw each layer's heads, too.
        format: file format of the figures.
    """

    output: str
    text: str | None = None
    target: str | None = None
    question: str | None = None
    context: str | None = None
    heads: bool = False
    format: Literal["png", "svg", "pdf"] = "png"

    def run(self) -> list[Path]:
        """Draw the figures and print the alignment; return the files.

        Raises:
            UserError: if the bundle cannot be used, or there is no input.
        """
        bundle = self.load()
        check_read(bundle, text=self.text, question=self.question, context=self.context)
        for key in bundle.reads:
            if key != "text" and not (getattr(self, key) or "").strip():
                raise UserError(f"{key} is empty; set {key}=...")
        text = self.question or self.text or ""
        look = pictures_of(bundle).look(text, self.context or "", self.target, self.heads)
        print(*look.lines, sep="\n")
        folder = user_path(self.output)
        pictures = [
            save(figure, folder / f"{name}.{self.format}") for name, figure in look.figures.items()
        ]
        paths = " ".join(map(str, pictures)) or "none (no attention weights to show)"
        print(f"figures:   {paths}", flush=True)
        return pictures
