"""Interface of text scorers, and BLEU and chrF by sacrebleu."""

import re
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from seqattn.checking import BadValue
from seqattn.errors import UserError
from seqattn.metrics.references import References, reference_lists
from seqattn.metrics.scripts import unsplit
from seqattn.metrics.significance import SentenceCounts

if TYPE_CHECKING:  # torchmetrics imports scipy, matplotlib and more, which takes seconds
    from torchmetrics import Metric, MetricCollection

_BY_SPACES = ("13a", "intl", "none")
"""Tokenizers of sacrebleu that split at spaces and punctuation."""


@dataclass(frozen=True)
class TextScore:
    """A corpus score.

    Attributes:
        name: such as "BLEU".
        value: from 0 to 100.
        signature: all settings needed to reproduce the score.
        interval: 95% bootstrap interval; None if not requested.
    """

    name: str
    value: float
    signature: str
    interval: tuple[float, float] | None = None

    @property
    def key(self) -> str:
        """Name in logs: `bleu` for BLEU, `rougeL` for ROUGE-L."""
        return key_of(self.name)


def key_of(name: str) -> str:
    """Return a score's name in logs."""
    words = re.sub(r"([A-Z][A-Z0-9]+)-?", lambda word: word[1].lower(), name)
    return words.replace(" ", "_")


def lower_is_better(scorer: object, name: str) -> bool:
    """Return True if a lower score is better. Args: name: the score's name, plain or as logged."""
    lower = getattr(scorer, "lower", ())
    return name in lower or key_of(name) in lower


def named(scores: Sequence[TextScore], split: str) -> dict[str, float | str]:
    """Return values and signatures as `SPLIT/KEY` and `SPLIT/KEY signature`, as in bundles."""
    entries: dict[str, float | str] = {}
    for score in scores:
        entries[f"{split}/{score.key}"] = score.value
        entries[f"{split}/{score.key} signature"] = score.signature
    return entries


class Scorer(Protocol):
    """Interface of a scorer of a task's outputs."""

    logged: ClassVar[tuple[str, ...]]
    """Names of the scores of `corpus`; a run logs each as `val/NAME`.

    A scorer of errors also has `lower`, a tuple of the names for which lower is better. Without
    it, higher is better.
    """

    def corpus(self) -> "Metric | MetricCollection":
        """Return a metric over batches and ranks, with `update(hypotheses, references)` and a
        `compute` that returns a value from 0 to 100 for each name; by default of `sentences`."""
        from seqattn.metrics.means import CorpusScores

        return CorpusScores(self.logged, self.sentences)

    @abstractmethod
    def score(
        self,
        hypotheses: Sequence[str],
        references: References,
        sources: Sequence[str] | None = None,
    ) -> list[TextScore]:
        """Score a corpus.

        Args:
            hypotheses: N texts.
            references: a text for each, or a list of texts.
            sources: N texts, for scores that need them.

        Raises:
            UserError: unequal numbers of hypotheses and references, or a row without references.
        """

    @abstractmethod
    def sentences(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> list[SentenceCounts]:
        """Return the scores that are compared between systems, as counts per row."""


def scorer_notices(scorer: object, references: Iterable[Sequence[str]]) -> list[str]:
    """Return a scorer's warnings about references that it cannot measure, if it has `notices`."""
    warnings: list[str] = getattr(scorer, "notices", lambda _: [])(references)
    return warnings


@dataclass(frozen=True)
class TextScorer(Scorer):
    """BLEU and chrF.

    Args:
        tokenize: sacrebleu's tokenizer: `13a` for plain text, `none` for tokenized text.
        lowercase: ignore case.

    Raises:
        UserError: sacrebleu has no such tokenizer.
    """

    logged: ClassVar[tuple[str, ...]] = ("bleu", "chrF")
    tokenize: str = "13a"
    lowercase: bool = False

    def __post_init__(self) -> None:
        if self.tokenize not in BLEU.TOKENIZERS:
            known = ", ".join(sorted(BLEU.TOKENIZERS))
            raise BadValue("tokenize", f"must be one of {known}, got {self.tokenize}")
        try:
            _ = self.metrics
        except (RuntimeError, ImportError, OSError) as error:
            why = " ".join(str(error).split())
            raise BadValue("tokenize", f"cannot be {self.tokenize}: {why}") from error

    @property
    def metrics(self) -> tuple[tuple[str, BLEU | CHRF], ...]:
        """BLEU (Papineni et al. 2002; Post 2018, arXiv 1804.08771) and chrF (Popović 2015)."""
        # force: no warning about deliberately tokenized text
        bleu = BLEU(tokenize=self.tokenize, lowercase=self.lowercase, force=True)
        return ("BLEU", bleu), ("chrF", CHRF(lowercase=self.lowercase))

    def notices(self, references: Iterable[Sequence[str]]) -> list[str]:
        """Return a warning if BLEU would read texts without spaces, or tokenized ones, wrongly."""
        texts = [*chain.from_iterable(references)]
        if self.tokenize in _BY_SPACES and unsplit(texts):
            return [
                f"the references have no spaces between words, but scorer.tokenize={self.tokenize} "
                "splits at spaces, so BLEU is near 0; set scorer.tokenize=zh (Chinese), ja-mecab "
                "(Japanese) or char (any language); for training, set task.scorer.tokenize"
            ]
        ends = [len(word) == 1 for text in texts for word in text.split() if word[-1] in ".,"]
        if self.tokenize in ("none", "char") or sum(ends) <= max(9, len(texts) / 10, len(ends) / 2):
            return []
        return [
            "the references are tokenized (spaces before . and ,), but scorer.tokenize="
            f"{self.tokenize} expects plain text; detokenize references and outputs, or set "
            "scorer.tokenize=none; for training, set task.scorer.tokenize"
        ]

    def score(
        self,
        hypotheses: Sequence[str],
        references: References,
        sources: Sequence[str] | None = None,
    ) -> list[TextScore]:
        """Return BLEU and chrF; see `Scorer.score`."""
        if not hypotheses:
            raise UserError("there are no texts to score")
        # sacrebleu wants the first reference of every row, then the second, None where a row
        # has no more.
        streams = [list(row) for row in zip_longest(*reference_lists(references, len(hypotheses)))]
        scores = []
        for name, metric in self.metrics:
            value = metric.corpus_score(list(hypotheses), streams).score
            scores.append(TextScore(name, float(value), str(metric.get_signature())))
        return scores

    def sentences(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> list[SentenceCounts]:
        """Return BLEU and chrF; see `Scorer.sentences`."""
        streams = [list(row) for row in zip_longest(*references)]
        return [
            SentenceCounts(
                name,
                np.array(metric._extract_corpus_statistics(hypotheses, streams), np.float64),
                partial(_score_of_counts, metric),
            )
            for name, metric in self.metrics
        ]


def _score_of_counts(metric: BLEU | CHRF, counts: list[float]) -> float:
    return float(metric._compute_score_from_stats(counts).score)  # type: ignore[arg-type]


def sentence_chrf(hypothesis: str, references: Sequence[str]) -> float:
    """Return sacrebleu's chrF (Popović 2015) of one text, from 0 to 100."""
    return float(CHRF().sentence_score(hypothesis, list(references)).score)


def sentence_bleu(hypothesis: str, references: Sequence[str]) -> float:
    """Return sacrebleu's smoothed BLEU of one text, from 0 to 100."""
    return float(BLEU(effective_order=True).sentence_score(hypothesis, list(references)).score)
