"""Several scorers as one."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from seqattn.errors import UserError
from seqattn.metrics.references import References
from seqattn.metrics.significance import SentenceCounts
from seqattn.metrics.text import TextScore, scorer_notices

if TYPE_CHECKING:
    from seqattn.metrics.means import SeveralMetrics


class SeveralScorers:
    """The scores of each of several scorers in turn; see `Scorer`.

    It has the method `sentences` if each of them has it.

    Raises:
        UserError: if two of them log a score by the same name.
    """

    def __init__(self, scorers: Sequence[Any]) -> None:
        self.scorers = list(scorers)
        self.logged = tuple(name for one in scorers for name in one.logged)
        self.lower = tuple(name for one in scorers for name in getattr(one, "lower", ()))
        if twice := [name for name in self.logged if self.logged.count(name) > 1]:
            raise UserError(f"task.scorer lists two scorers of {twice[0]}; remove one of them")
        if all(hasattr(one, "sentences") for one in scorers):
            self.sentences = self._sentences

    def corpus(self) -> "SeveralMetrics":
        """Return a metric over batches and ranks."""
        from seqattn.metrics.means import SeveralMetrics

        return SeveralMetrics([one.corpus() for one in self.scorers])

    def score(
        self,
        hypotheses: Sequence[str],
        references: References,
        sources: Sequence[str] | None = None,
    ) -> list[TextScore]:
        """Score a corpus by each scorer."""
        scores = (one.score(hypotheses, references, sources) for one in self.scorers)
        return [*chain.from_iterable(scores)]

    def notices(self, references: Iterable[Sequence[str]]) -> list[str]:
        """Return the warnings of each scorer."""
        rows = list(references)
        return [warning for one in self.scorers for warning in scorer_notices(one, rows)]

    def _sentences(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> list[SentenceCounts]:
        counts = (one.sentences(hypotheses, references) for one in self.scorers)
        return [*chain.from_iterable(counts)]


def one_scorer(scorer: Any) -> Any:
    """Return a scorer, or the scorers of a list as one."""
    return SeveralScorers(scorer) if isinstance(scorer, list) and scorer else scorer


def check_sentences(scorer: Any, command: str) -> None:
    """Check that a scorer, or each of several as one, can be compared. Args: command: needs it.

    Raises:
        UserError: if one has no method `sentences`.
    """
    for each in getattr(scorer, "scorers", [scorer]):
        if not hasattr(each, "sentences"):
            raise UserError(
                f"{command} needs a scorer with the method sentences(), which "
                f"{type(each).__name__} lacks; add it, see Add a metric in docs/extending.md"
            )
