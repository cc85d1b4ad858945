"""Reranking of hypotheses with the scores of another model."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from seqattn.bundle.bundle import Bundle
from seqattn.bundle.load import load_bundle
from seqattn.checking import NotNegative
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.generation.base import Hypothesis
from seqattn.generation.forced_decoding import forced_log_probabilities
from seqattn.tokens import EOS

Lists = Sequence[Sequence[Hypothesis]]
"""Lists of hypotheses, one for each source."""


def most_hypotheses(search: Any) -> int:
    """Return the largest number of hypotheses per source that a search returns."""
    return max(getattr(search, "n_best", 1), getattr(search, "beam_size", 1))


@dataclass(frozen=True, kw_only=True)
class Reranking:
    """Reranking of n-best lists (Li and Jurafsky 2016, arXiv 1601.00372, MMI-bidi; the noisy
    channel of Yee et al. 2019, arXiv 1908.05731, without its language model).

    A hypothesis y of a source x scores its search score plus weight * log p(x | y) / |x|.

    Args:
        bundle: path of the other model, whose vocabulary may differ; None for no reranking.
        ensemble: paths of bundles to average it with, as in `seqattn.load`.
        weight: weight of the other model's mean log-probability per token.
        direction: reverse, from target to source; or forward, with log p(y | x) / |y|.

    Raises:
        UserError: for other settings without a bundle.
    """

    bundle: str | None = None
    ensemble: list[str] = field(default_factory=list)
    weight: NotNegative = 0.5
    direction: Literal["reverse", "forward"] = "reverse"

    def __post_init__(self) -> None:
        others = self.ensemble, self.weight, self.direction
        if self.bundle is None and others != ([], 0.5, "reverse"):
            raise UserError("rerank needs another model; add rerank.bundle=PATH")

    def search(self, search: Any) -> Any:
        """Return a search with all of its hypotheses.

        Raises:
            UserError: if it has only one.
        """
        if self.bundle is None:
            return search
        if most_hypotheses(search) == 1:
            raise UserError(
                "reranking needs several hypotheses; add generation=beam, or generation=sampling "
                "generation.n_best=10"
            )
        return replace(search, n_best=most_hypotheses(search))

    def over(
        self, tokenizer: Tokenizer, device: str = "cpu", trust: Sequence[str] = ()
    ) -> "Reranker | None":
        """Return the reranker for a tokenizer's hypotheses; None without a bundle.

        Raises:
            UserError: if the bundle cannot be used, or does not generate text.
        """
        if self.bundle is None:
            return None
        bundle = load_bundle(self.bundle, device, trust, self.ensemble).texts("rerank")
        return Reranker(bundle, tokenizer, self.weight, self.direction == "reverse")


@dataclass(frozen=True)
class Reranker:
    """Rerank hypotheses, caching the scores; see `Reranking`.

    Args:
        bundle: the other model.
        tokenizer: tokenizer of the hypotheses.
        weight: weight of the other model.
        reverse: True if it generates the source of a hypothesis.
    """

    bundle: Bundle
    tokenizer: Tokenizer
    weight: float
    reverse: bool
    known: dict[tuple[str, str], float] = field(default_factory=dict, repr=False)

    def rank(self, sources: Sequence[str], lists: Lists) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first, with their new scores."""
        each = [self.tokenizer.decode_target([one.ids for one in some]) for some in lists]
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
            for row in zip(lists, pairs, strict=True)
        ]  # fmt: skip

    def _score(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Cache the mean log-probability per token of each pair's second text.

        A long first text is represented by its first window, an empty one by its end mark.
        """
        read = [windows[0] or [EOS] for windows in self.bundle.encode([one for one, _ in pairs])]
        targets = self.bundle.tokenizer.encode_target([other for _, other in pairs])
        rows = list(zip(read, targets, strict=True))
        totals = forced_log_probabilities(self.bundle.answering, rows)
        means = (total / len(ids) for total, ids in zip(totals, targets, strict=True))
        self.known.update(zip(pairs, means, strict=True))
