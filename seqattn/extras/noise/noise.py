"""Settings of noise: how often training draws each kind, and which kinds evaluation tries."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from seqattn.bundle.outputs import Outputs
from seqattn.bundle.text_options import TextOption
from seqattn.checking import Share
from seqattn.data.base import Source, Texts
from seqattn.errors import UserError
from seqattn.extras.noise.kinds import KINDS
from seqattn.extras.noise.vocabulary_texts import LEARNT, NoisyTexts


@dataclass(frozen=True)
class Noise(TextOption):
    """Rates of kinds of noise, each the share of the training pairs of an epoch that get it.

    Args: upper, title, typos, end_punctuation, copied, tags: as the functions of these names.
    """

    upper: Share = 0.0
    title: Share = 0.0
    typos: Share = 0.0
    end_punctuation: Share = 0.0
    copied: Share = 0.0
    tags: Share = 0.0

    has_columns: ClassVar[bool] = True  # of `evaluate` alone

    @property
    def rates(self) -> Mapping[str, float]:
        """Rates above 0, in the order in which a pair gets the kinds."""
        rates = asdict(self)
        return {name: rates[name] for name in KINDS if rates[name]}

    def rows(self, data: Source, seed: int) -> Callable[..., Any] | None:
        """Return what makes noisy rows, as `join` of `Seq2SeqData`; None without any noise.

        Args: data: source of the pairs. seed: of the draws.

        Raises:
            UserError: for data whose texts are other than pairs of `data.load`.
        """
        if not self.rates:
            return None
        name = type(data).__name__
        if type(data).rows is not Source.rows:
            raise UserError(f"noise needs texts, and {name} gives ids; remove noise")
        if data.yields != "pairs" or data.redraws or hasattr(data, "mark"):  # of features of words
            raise UserError(
                f"noise needs pairs of texts that stay as they are, unlike those of {name}; remove "
                "noise"
            )
        if data.documents:
            raise UserError("noise and data.documents are mutually exclusive; remove one")
        from seqattn.extras.noise.rows import NoisyRows  # which imports `datasets`

        return partial(NoisyRows, self.rates, seed)

    def learnt(
        self, source: Iterable[str], target: Iterable[str]
    ) -> tuple[Iterable[str], Iterable[str]]:
        """Return the texts that a vocabulary is learned from: some of these in capitals."""
        rates = {name: rate for name, rate in self.rates.items() if name in LEARNT}
        if not rates:
            return source, target
        return NoisyTexts(source, target, 0, rates), NoisyTexts(source, target, 1, rates)

    @property
    def has_effect(self) -> bool:
        return bool(self.rates)

    @property
    def _evaluated(self) -> list[str]:
        """Kinds that evaluation tries: those of texts as people write them."""
        return [name for name in self.rates if name not in ("copied", "tags")]

    def check_split(self, bundle: Any, rows: Texts, scorer: Any, split: str, part: Any) -> None:
        """Check before a search that outputs under noise can be scored.

        Raises:
            UserError: if they cannot.
        """
        if not self.has_effect:
            return
        if not self._evaluated:
            raise UserError("evaluate tries noise=upper|title|typos|end_punctuation, not others")
        if list(bundle.reads) != ["text"] or any(hasattr(text, "head") for text in rows.sources):
            raise UserError("noise needs a bundle that reads plain texts; remove noise")
        if not hasattr(scorer, "sentences"):
            raise UserError("noise needs a scorer of sentences, such as BLEU; remove noise")

    def evaluated(
        self, bundle: Any, outputs: Outputs, scorer: Any, split: str, directory: Path, part: Any
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Return scores of a split under each kind of noise with a rate, see `noisy_scores`."""
        if not self._evaluated:
            return {}, {}
        from seqattn.extras.noise.scores import noisy_scores

        return noisy_scores(self._evaluated, bundle, outputs, scorer, split, directory)
