"""Distilled corpora: training sources with a teacher's outputs as targets."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from seqattn.data.base import Texts
from seqattn.errors import UserError
from seqattn.extras.corpora.synthetic import SyntheticCorpus
from seqattn.metrics.text import sentence_bleu
from seqattn.subcommands.reranking import most_hypotheses


@dataclass(frozen=True, kw_only=True)
class Distillation(SyntheticCorpus):
    """Sequence-level knowledge distillation (Kim and Rush 2016, arXiv 1606.07947).

    Args:
        bundle, device, trust, ensemble, data, generation, output, originals, sentences, cache_dir:
            as `SyntheticCorpus`; the bundle is the teacher.
        target: best, the teacher's best output (their section 3.2); or nearest, its
            hypothesis with the highest sentence BLEU (section 3.3, Seq-Inter).

    Raises:
        UserError: if target is nearest and the search returns one hypothesis.
    """

    subcommand: ClassVar[str] = "distil"
    choice: ClassVar[str] = "distilled"

    target: Literal["best", "nearest"] = "best"

    def __post_init__(self) -> None:
        if self.target == "nearest" and most_hypotheses(self.generation) == 1:
            raise UserError(
                "target=nearest needs several hypotheses; add generation=beam, or "
                "generation.n_best=10 with generation=sampling"
            )

    @property
    def search(self) -> Any:
        search: Any = self.generation
        nearest = self.target == "nearest"
        return replace(search, n_best=most_hypotheses(search)) if nearest else search

    def deciding(self) -> dict[str, Any]:
        return {**super().deciding(), "target": self.target}

    def pair(self, number: int, inputs: Texts, outputs: Sequence[str]) -> tuple[str, str]:
        best = outputs[0]
        if self.target == "nearest":
            best = max(outputs, key=lambda text: sentence_bleu(text, inputs.references[number]))
        return inputs.sources[number], best
