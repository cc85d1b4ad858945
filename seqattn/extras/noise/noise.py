"""Settings of noise: how often training draws each kind."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from seqattn.checking import Share
from seqattn.data.base import Source
from seqattn.errors import UserError
from seqattn.extras.noise.kinds import KINDS


@dataclass(frozen=True)
class Noise:
    """Rates of kinds of noise, each the share of the training pairs of an epoch that get it.

    Args: upper, title, typos, end_punctuation, copied, tags: as the functions of these names.
    """

    upper: Share = 0.0
    title: Share = 0.0
    typos: Share = 0.0
    end_punctuation: Share = 0.0
    copied: Share = 0.0
    tags: Share = 0.0

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
