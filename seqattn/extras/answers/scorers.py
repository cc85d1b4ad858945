"""Exact match and F1 of answers, as in SQuAD's official scorers."""

import re
import string
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

import numpy as np
from annotated_types import Ge, Le

from seqattn import __version__
from seqattn.errors import UserError
from seqattn.metrics.references import References, reference_lists
from seqattn.metrics.scripts import unsplit
from seqattn.metrics.significance import Floats, SentenceCounts
from seqattn.metrics.text import TextScore

if TYPE_CHECKING:  # imports torchmetrics
    from seqattn.metrics.means import CorpusScores

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize(text: str) -> str:
    """Remove case, ASCII punctuation, English articles and redundant spaces from a text."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(prediction: str, answers: Iterable[str]) -> float:
    """Return 1 if a prediction equals one of the gold answers after `normalize`, else 0.

    Args:
        prediction: the text, "" for "no answer".
        answers: the gold answers; empty for an unanswerable question. Answers that are empty
            after `normalize` are ignored, as in the scorer of SQuAD 2.0.
    """
    return float(normalize(prediction) in _gold(answers))


def f1(prediction: str, answers: Iterable[str]) -> float:
    """Compute the word overlap of a prediction with the best matching gold answer.

    Args:
        prediction, answers: as for `exact_match`.

    Returns:
        The harmonic mean of precision and recall over words, 0 to 1 (Rajpurkar et al. 2016,
        arXiv 1606.05250, section 6.1); if either has no words, 1 if neither has, else 0.
    """
    words = normalize(prediction).split()
    return max(_overlap(words, gold.split()) for gold in _gold(answers))


def _gold(answers: Iterable[str]) -> list[str]:
    return [answer for answer in map(normalize, answers) if answer] or [""]


def _overlap(words: list[str], gold: list[str]) -> float:
    if not words or not gold:
        return float(words == gold)
    shared = sum((Counter(words) & Counter(gold)).values())
    return 2 * shared / (len(words) + len(gold))


def measures(predictions: Sequence[str], answers: Sequence[Iterable[str]]) -> Floats:
    """Return exact match and F1 of N predictions, (N, 2), from 0 to 100."""
    rows = [(exact_match(*row), f1(*row)) for row in zip(predictions, answers, strict=True)]
    return 100 * np.array(rows, np.float64).reshape(-1, 2)


def _check(
    predictions: Mapping[str, str],
    questions: Mapping[str, Sequence[str]],
    no_answer: Mapping[str, float] | None,
) -> None:
    """Raise UserError for a question without a prediction or without a valid probability."""
    if not questions:
        raise UserError("there are no questions to score")
    required: dict[str, Mapping[str, object]] = {"prediction": predictions}
    if no_answer is not None:
        required["no-answer probability"] = no_answer
    for noun, values in required.items():
        missing = [name for name in questions if name not in values]
        if missing:
            raise UserError(
                f"{len(missing):,} of {len(questions):,} questions have no {noun}, such as "
                f"{missing[0]!r}; is this the file of another split?"
            )
    for name, value in (no_answer or {}).items():
        if name in questions and not 0 <= value <= 1:
            raise UserError(f"a no-answer probability must be in [0, 1], got {value} for {name!r}")


def _notices(scorer: object, references: Iterable[Sequence[str]]) -> list[str]:
    """Return a warning if F1 would treat complete answers as single words."""
    if not unsplit(chain.from_iterable(references)):
        return []
    return [
        "the answers have no spaces between words; F1 splits at spaces, so it compares whole "
        "answers, much like EM"
    ]


@dataclass(frozen=True)
class QaScorer:
    """Exact match and F1 over a set of questions.

    Args:
        threshold: a no-answer probability above it replaces a prediction with "no answer"; the
            official default, 1, replaces none. `best_threshold` finds one.
    """

    logged: ClassVar[tuple[str, ...]] = ("em", "f1")
    """Names of the scores that a run logs as `val/NAME`."""
    threshold: Annotated[float, Ge(-1), Le(1)] = 1.0

    def score(
        self,
        predictions: Mapping[str, str],
        questions: Mapping[str, Sequence[str]],
        no_answer: Mapping[str, float] | None = None,
    ) -> list[TextScore]:
        """Score predictions, from 0 to 100.

        Args:
            predictions: each question's answer, by id; "" for "no answer". Ids that are not in
                `questions` are ignored.
            questions: each question's gold answers, by id; empty for an unanswerable one.
            no_answer: each question's probability of having no answer, 0 to 1; None if only ""
                means no answer.

        Returns:
            "EM" and "F1"; where some questions are unanswerable, also "HasAns EM", "HasAns F1",
            "NoAns EM" and "NoAns F1" over those that have an answer and those that have none.

        Raises:
            UserError: there are no questions, or one lacks a prediction or a probability.
        """
        _check(predictions, questions, no_answer)
        unanswered = {name for name in questions if no_answer and no_answer[name] > self.threshold}
        texts = ["" if name in unanswered else predictions[name] for name in questions]
        values = measures(texts, list(questions.values()))
        answerable = np.array([bool(answers) for answers in questions.values()])
        threshold = "none" if no_answer is None else f"{self.threshold:g}"
        signature = (
            f"questions:{len(questions)}|unanswerable:{np.sum(~answerable)}|answers:best|"
            f"norm:squad|threshold:{threshold}|version:seqattn-{__version__}"
        )
        parts = {"": answerable | True}
        if not answerable.all():
            parts |= {"HasAns ": answerable, "NoAns ": ~answerable}
        return [
            TextScore(part + name, mean, signature)
            for part, rows in parts.items()
            if rows.any()
            for name, mean in zip(("EM", "F1"), values[rows].mean(0).tolist(), strict=True)
        ]

    notices = _notices

    def sentences(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> list[SentenceCounts]:
        """Return EM and F1; see `Scorer.sentences`."""
        return SentenceCounts.of_means(["EM", "F1"], measures(hypotheses, references))


@dataclass(frozen=True)
class AnswerScorer:
    """Exact match and F1 of generated answers, as in `QaScorer`.

    Unanswerable questions have a reference that says so in words.
    """

    logged: ClassVar[tuple[str, ...]] = ("em", "f1")

    def corpus(self) -> "CorpusScores":
        from seqattn.metrics.means import CorpusScores

        return CorpusScores(self.logged, QaScorer().sentences)

    def score(
        self,
        hypotheses: Sequence[str],
        references: References,
        sources: Sequence[str] | None = None,
    ) -> list[TextScore]:
        """Return EM and F1; see `Scorer.score`."""
        rows = reference_lists(references, len(hypotheses))
        predictions = {str(index): text for index, text in enumerate(hypotheses)}
        return QaScorer().score(predictions, {str(index): row for index, row in enumerate(rows)})

    notices, sentences = _notices, QaScorer.sentences


class Threshold(NamedTuple):
    """A no-answer probability above which questions are left unanswered (-1: all are), and the
    resulting score, from 0 to 100, on the questions used to find it."""

    value: float
    score: float


def best_threshold(
    predictions: Mapping[str, str],
    questions: Mapping[str, Sequence[str]],
    no_answer: Mapping[str, float],
) -> Threshold:
    """Find the no-answer threshold with the best F1 (Rajpurkar et al. 2018, arXiv 1806.03822).

    Search on a dev set and apply the threshold to another set; on the same set, as in the official
    "best F1", the score is optimistic.

    Args:
        predictions, questions, no_answer: as for `QaScorer.score`.

    Returns:
        The lowest of the best thresholds. Questions with equal probability are treated alike, so
        applying the threshold reproduces the score; the official script may split them.

    Raises:
        UserError: as in `QaScorer.score`.
    """
    _check(predictions, questions, no_answer)
    gains: dict[float, float] = defaultdict(float)
    for name, answers in questions.items():
        gains[no_answer[name]] += f1(predictions[name], answers) - f1("", answers)
    total = sum(f1("", answers) for answers in questions.values())
    best = Threshold(-1.0, total)
    for value in sorted(gains):
        total += gains[value]
        if total > best.score:
            best = Threshold(value, total)
    return best._replace(score=100 * best.score / len(questions))
