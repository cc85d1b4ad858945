"""Back-translated corpora: texts in the target language, with sources written by a model."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from seqattn.checking import CountOrNone, Seed, Share
from seqattn.data.base import Texts
from seqattn.data.source_ids import joined_source
from seqattn.data.text_files import scan_text
from seqattn.errors import UserError
from seqattn.extras.corpora.corpora import input_texts
from seqattn.extras.corpora.synthetic import SyntheticCorpus
from seqattn.metrics.scripts import split_words, unsplit
from seqattn.storage import user_path

_BLANK = "_"
_FARTHEST = 3


@dataclass(frozen=True, kw_only=True)
class BackTranslation(SyntheticCorpus):
    """Back-translation (Sennrich et al. 2016, arXiv 1511.06709).

    Args:
        bundle, device, trust, ensemble, data, generation, output, originals, sentences, cache_dir:
            as `SyntheticCorpus`; a model from the target language to the source language. The
            pairs of `data`, in the direction of its training, are reversed.
        input: file of texts in the target language, as `generate` reads it.
        tag: prefix of every synthetic source, such as BT for "<BT> " (Caswell et al. 2019, arXiv
            1906.06442); None for none.
        word_noise: share of words dropped from a synthetic source, and of the others blanked; all
            words then move by fewer than four places (Edunov et al. 2018, arXiv 1808.09381, use
            0.1). 0 for none.
        seed: seed of the noise.
    """

    subcommand: ClassVar[str] = "backtranslate"
    choice: ClassVar[str] = "backtranslated"

    input: str
    originals: CountOrNone = 1
    tag: str | None = None
    word_noise: Share = 0.0
    seed: Seed = 0

    def deciding(self) -> dict[str, Any]:
        settings = {"tag": self.tag, "noise": self.word_noise, "seed": self.seed}
        return super().deciding() | settings

    def contents(self) -> dict[str, list[str]]:
        return super().contents() | {"input": [scan_text(user_path(self.input))[1]]}

    def in_direction(self, texts: Texts) -> Texts:
        return Texts(texts.targets, texts.sources, [[text] for text in texts.sources], None)

    def inputs(self, train: Texts) -> Texts:
        lines = [text for text in input_texts(self.input, self.data) if text.strip()]
        if not lines:
            raise UserError(f"input={self.input} contains no text")
        return Texts(lines, [], [], None)

    def pair(self, number: int, inputs: Texts, outputs: Sequence[str]) -> tuple[str, str]:
        source = outputs[0]
        if self.word_noise:
            source = noised(source, self.word_noise, random.Random(self.seed << 32 | number))
        if self.tag:
            source = joined_source([self.tag], [source], "")
        return source, inputs.sources[number]


def noised(text: str, share: float, random: random.Random) -> str:
    """Return a text whose words are dropped, blanked and moved at random.

    Args:
        text: the text; at least one word remains.
        share: share of words dropped, and of the others blanked.
        random: random number generator.
    """
    words = split_words(text)
    remaining = [word for word in words if random.random() >= share] or words[:1]
    blanked = [_BLANK if random.random() < share else word for word in remaining]
    positions = [position + random.uniform(0, _FARTHEST + 1) for position in range(len(blanked))]
    between = "" if unsplit([text]) else " "
    return between.join(
        word for _, word in sorted(zip(positions, blanked), key=lambda pair: pair[0])
    )
