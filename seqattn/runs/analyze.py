"""Where a bundle's attention looks in one sentence, or in one question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seqattn.analysis.heatmaps import Sentence, attention_heatmaps
from seqattn.analysis.plots import save
from seqattn.bundle.bundle import SpanBundle, TextBundle, load_bundle
from seqattn.bundle.files import read_config
from seqattn.checking import checked
from seqattn.errors import UserError
from seqattn.runs.span_fitting import draw_question
from seqattn.runs.task_options import task_class

_LONGEST = 400  # tokens of a side; labels of thousands take minutes to draw


@checked
@dataclass(frozen=True)
class Analysis:
    """Heatmaps of a bundle's attention, and the alignment of words that they imply.

    Args:
        bundle: the path of a trained model.
        output: the directory for the pictures.
        text: the sentence to look into.
        target: an output of one's own; None for the model's.
        question: in place of a text, for a bundle that answers by spans.
        context: what the question is about.
        device: where the model runs.
        trust: packages, beside this one, that parts of the bundle may come from.
    """

    bundle: str
    output: str
    text: str | None = None
    target: str | None = None
    question: str | None = None
    context: str | None = None
    device: str = "cpu"
    trust: Sequence[str] = ()

    def run(self) -> list[Path]:
        """Draws and prints; returns the pictures.

        Raises:
            UserError: where the bundle cannot be used, or there is nothing to look into.
        """
        config = read_config(Path(self.bundle).expanduser(), trust=self.trust)
        spans = task_class(config).output == "spans"
        if spans and not ((self.question or "").strip() and (self.context or "").strip()):
            raise UserError(
                'a question needs its context: question="Who runs?" context="A dog runs."'
            )
        if not spans and (self.question or self.context):
            raise UserError("this bundle takes text=..., not a question; leave it out")
        if not spans and not (self.text or "").strip():
            raise UserError('text must hold some words: text="A dog runs."')
        bundle = load_bundle(self.bundle, self.device, trust=self.trust)
        if isinstance(bundle, SpanBundle):
            return self._question(bundle, self.question or "", self.context or "")
        return self._sentence(bundle, self.text or "")

    def _sentence(self, bundle: TextBundle, text: str) -> list[Path]:
        tokenizer = bundle.tokenizer
        source_ids = _drawable("text", tokenizer.encode_source([text])[0])
        output = bundle.generate([text])[0] if self.target is None else self.target
        target_ids = _drawable("target", tokenizer.encode_target([output])[0])
        found = attention_heatmaps(
            bundle.model,
            Sentence(source_ids, tokenizer.source_pieces(source_ids)),
            Sentence(target_ids, tokenizer.target_pieces(target_ids)),
        )
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
        found = bundle.answer([question], [context])[0]
        best = found.answers[0].text if found.answers else "(no answer)"
        print(f"question:  {question}\nanswer:    {best}")
        figure = draw_question(bundle.model, bundle.encoder, question, context)
        if figure is None:
            return []
        picture = save(figure, Path(self.output).expanduser() / "question.png")
        print(f"picture:   {picture}", flush=True)
        return [picture]


def _drawable(name: str, ids: list[int]) -> list[int]:
    if len(ids) > _LONGEST:
        raise UserError(
            f"{name} has {len(ids):,} tokens and a picture shows at most {_LONGEST}; shorten it"
        )
    return ids
