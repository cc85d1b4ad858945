"""Plots of a bundle's attention in a text."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure

from seqattn.bundle.bundle import Bundle
from seqattn.data.base import Texts
from seqattn.data.batch import Batch
from seqattn.errors import UserError
from seqattn.extras.pictures.base import Look, Pictures
from seqattn.extras.pictures.health import ForwardPass, pass_over_texts
from seqattn.extras.pictures.heatmaps import VIEWS, Heatmaps, Sentence, attention_heatmaps
from seqattn.generation.base import inference

_LONGEST = 400  # tokens per side; labels of thousands take minutes to draw
_SHORT = 300  # characters of a text that gives a readable figure
_MAX_TOKENS = 60  # tokens per side in the figure of a training run


@dataclass(frozen=True)
class TextPictures(Pictures):
    """Pictures of a bundle that generates text."""

    bundle: Bundle

    def look(self, text: str, context: str, target: str | None, heads: bool) -> Look:
        output, said, window = target, "target", 0
        if output is None:
            shortest = min(self.bundle.encode([text])[0], key=len)
            _check_length("text", shortest)  # before a search, which takes long for such a text
            best, window = self.bundle.best(text)
            [output], said = self.bundle.tokenizer.decode_target([best.ids]), "output"
        heatmaps = draw_text(self.bundle, text, output, heads=heads, said=said, window=window)
        lines = [f"source:    {text}", f"{said}:    {output}"]
        windows = len(self.bundle.encode([text])[0])
        if windows > 1:
            lines.append(f"windows:   {windows} (plotting number {window + 1})")
        words = heatmaps.alignment
        if words is not None and words.links:
            pairs = zip(words.target, words.links, strict=True)
            links = ", ".join(f"{target} ← {words.source[index]}" for target, index in pairs)
            lines += [f"attention: {links}", f"alignment: {words.pharaoh()}"]
        if heatmaps.without:
            views = " and ".join(heatmaps.without)
            lines.append(f"no weights: some layers of {views} compute none")
        return Look(lines, heatmaps.figures)

    def sample(self, rows: Texts, numbers: Sequence[int]) -> Figure | None:
        pairs = [(rows.sources[n], rows.targets[n]) for n in numbers]
        pair = min(pairs, key=lambda pair: max(_SHORT, *map(len, pair)))
        with inference(self.bundle.model):
            return draw_text(
                self.bundle, *pair, ["cross"], most=_MAX_TOKENS, said="reference"
            ).figures.get("cross")

    def forward_pass(self, batch: Batch, device: torch.device) -> ForwardPass:
        batch = batch.to(device)
        return pass_over_texts(self.bundle.model, batch.source, batch.target_input)


def draw_text(
    bundle: Bundle,
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
        if most is None:
            _check_length(name, ids)
    read, written = bundle.pieces_of((source, target), (None if window else text, output))
    sides = Sentence(source, read), Sentence(target, written)
    return attention_heatmaps(bundle.model, *sides, only, heads, most, said, bundle.reading)


def _check_length(name: str, ids: Sequence[int]) -> None:
    if len(ids) > _LONGEST:
        raise UserError(
            f"{name} has {len(ids):,} tokens, but a plot shows at most {_LONGEST}; shorten it"
        )
