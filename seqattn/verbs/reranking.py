"""Hypotheses ranked anew by what another model says of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from seqattn.bundle.loading import load_bundle
from seqattn.bundle.text_bundle import TextBundle
from seqattn.checking import NotNegative
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.generation.base import Hypothesis
from seqattn.generation.forced import forced_log_probabilities
from seqattn.tokens import EOS

Lists = Sequence[Sequence[Hypothesis]]
"""Hypotheses of each source."""


def most_hypotheses(search: Any) -> int:
    """How many hypotheses of a source a search can give."""
    return max(getattr(search, "n_best", 1), getattr(search, "beam_size", 1))


@dataclass(frozen=True, kw_only=True)
class Reranking:
    """How n-best lists are ranked anew (Li and Jurafsky 2016, arXiv 1601.00372, MMI-bidi; the
    noisy channel of Yee et al. 2019, arXiv 1908.05731, without its language model).

    A hypothesis y of a source x scores what its search gave it, plus weight * log p(x | y) / |x|.

    Args:
        bundle: the other model's path; None for no reranking. It may have another vocabulary.
        ensemble: paths of others that score with it, as `seqattn.load`.
        weight: of the other model's mean log-probability of a token.
        direction: reverse, from target to source; or forward, log p(y | x) / |y| in its place.

    Raises:
        UserError: for any of these without a bundle.
    """

    bundle: str | None = None
    ensemble: list[str] = field(default_factory=list)
    weight: NotNegative = 0.5
    direction: Literal["reverse", "forward"] = "reverse"

    def __post_init__(self) -> None:
        given = self.ensemble, self.weight, self.direction
        if self.bundle is None and given != ([], 0.5, "reverse"):
            raise UserError("rerank needs another model: add rerank.bundle=PATH")

    def search(self, search: Any) -> Any:
        """The search, giving all hypotheses that it has.

        Raises:
            UserError: where it has one alone.
        """
        if self.bundle is None:
            return search
        if most_hypotheses(search) == 1:
            raise UserError(
                "reranking needs several hypotheses: add generation=beam, or generation=sampling "
                "generation.n_best=10"
            )
        return replace(search, n_best=most_hypotheses(search))

    def over(
        self, tokenizer: Tokenizer, device: str = "cpu", trust: Sequence[str] = ()
    ) -> "Reranker | None":
        """The ranking of hypotheses of a tokenizer; None without a bundle.

        Raises:
            UserError: where the bundle cannot be used, or does not give text.
        """
        if self.bundle is None:
            return None
        bundle = load_bundle(self.bundle, device, trust, self.ensemble).texts("rerank")
        return Reranker(bundle, tokenizer, self.weight, self.direction == "reverse")


@dataclass(frozen=True)
class Reranker:
    """Ranks hypotheses anew, see `Reranking`; what was scored once is not scored again.

    Args:
        bundle: of the other model.
        tokenizer: of the hypotheses.
        weight: of the other model.
        reverse: whether it says the source of a hypothesis.
    """

    bundle: TextBundle
    tokenizer: Tokenizer
    weight: float
    reverse: bool
    known: dict[tuple[str, str], float] = field(default_factory=dict, repr=False)

    def rank(self, sources: Sequence[str], found: Lists) -> list[list[Hypothesis]]:
        """The hypotheses of each source, best first, with their new scores."""
        each = [self.tokenizer.decode_target([one.ids for one in some]) for some in found]
        pairs = [
            [(text, str(source)) if self.reverse else (str(source), text) for text in texts]
            for source, texts in zip(sources, each, strict=True)
        ]
        self._score(list({pair for some in pairs for pair in some} - self.known.keys()))
        return [
            sorted(
                (one._replace(score=one.score + self.weight * self.known[pair])
                 for one, pair in zip(*row, strict=True)),
                key=lambda one: -one.score,
            )
            for row in zip(found, pairs, strict=True)
        ]  # fmt: skip

    def _score(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Mean log-probability of a token of each pair's second text; a long first one is read by
        its first window, an empty one by its end alone."""
        read = [windows[0] or [EOS] for windows in self.bundle.encode([one for one, _ in pairs])]
        said = self.bundle.tokenizer.encode_target([other for _, other in pairs])
        rows = list(zip(read, said, strict=True))
        totals = forced_log_probabilities(self.bundle.answering, rows)
        means = (total / len(ids) for total, ids in zip(totals, said, strict=True))
        self.known.update(zip(pairs, means, strict=True))
