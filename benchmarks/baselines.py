"""Baselines without a model: first sentence, summary of a similar document, random span."""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.suite import Figures, Row, Spread, Suite
from seqattn.data.base import Source, Texts
from seqattn.metrics.rouge import RougeScorer
from seqattn.metrics.text import TextScore

if TYPE_CHECKING:
    from seqattn.extras.answers.span_batch import Questions

_WORD = re.compile(r"\w+")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+")
_SENTENCE_OR_LINE_END = re.compile(r"(?<=[.!?])\s+|\n+")


@dataclass(frozen=True, kw_only=True)
class BaselinesSuite(Suite):
    """Scores of baselines without a model, for summarization or question answering.

    If documents have several references, these include the score of references against each other.

    Args:
        source: source of the data.
        split: train, val or test.
        cache_dir: cache directory of the texts; None for that of `datasets`.
    """

    source: Source
    split: str = "val"
    cache_dir: str | None = None

    def measure(self) -> Iterator[Figures]:
        cache = None if self.cache_dir is None else Path(self.cache_dir)
        table = self.source.load(self.split, cache)
        if "context" in table.column_names:
            from seqattn.extras.answers.span_batch import Questions

            scored = _of_questions(Questions.of(table), self.seed)
        else:
            scored = _of_documents(Texts.of(table), Texts.of(self.source.load("train", cache)))
        for name, scores in scored:
            yield Figures(f"{self.split}: {name}", [_row(score) for score in scores])


Scored = Iterator[tuple[str, Sequence[TextScore]]]
"""Name of each baseline, and its scores."""


def _of_questions(questions: "Questions", seed: int) -> Scored:
    from seqattn.extras.answers.scorers import QaScorer

    gold = dict(zip(questions.ids, questions.references, strict=True))
    for name, answers in (
        (
            "random span of the reference length",
            random_spans(questions.contexts, questions.references, seed),
        ),
        (
            "sentence sharing the most words with the question",
            best_sentences(questions.sources, questions.contexts),
        ),
    ):
        yield name, QaScorer().score(dict(zip(questions.ids, answers, strict=True)), gold)


def _of_documents(texts: Texts, known: Texts) -> Scored:
    nearest = nearest_summaries(texts.sources, known.sources, known.targets)
    for name, summaries in (
        ("first sentence", first_sentences(texts.sources)),
        ("summary of the most similar training document", nearest),
    ):
        yield name, RougeScorer().score(summaries, texts.references, texts.sources)
    others = [(other, first) for first, *more in texts.references for other in more]
    if others:
        written, first = map(list, zip(*others, strict=True))
        yield "other references against the first", RougeScorer().score(written, first)


def _row(score: TextScore) -> Row:
    value = Spread(score.value, *score.interval) if score.interval else score.value
    return {"score": score.name, "value": value, "signature": score.signature}


def best_sentences(questions: Sequence[str], contexts: Sequence[str]) -> list[str]:
    """Answer each question with its context's first sentence sharing the most words with it.

    Words count once each, in lower case; an empty context gives "".
    """

    def words(text: str) -> set[str]:
        return set(_WORD.findall(text.lower()))

    return [
        max(_SENTENCE_END.split(context.strip()), key=lambda s: len(words(question) & words(s)))
        for question, context in zip(questions, contexts, strict=True)
    ]


def random_spans(
    contexts: Sequence[str], answers: Sequence[Sequence[str]], seed: int = 0
) -> list[str]:
    """Answer each question with random context words, as many as in its first answer.

    A question without an answer or a context without words gets "".
    """
    chance = random.Random(seed)
    spans = []
    for context, right in zip(contexts, answers, strict=True):
        words = list(_WORD.finditer(context)) if right else []
        if not words:
            spans.append("")
            continue
        length = min(len(words), max(1, len(_WORD.findall(right[0]))))
        first = chance.randrange(len(words) - length + 1)
        spans.append(context[words[first].start() : words[first + length - 1].end()])
    return spans


def first_sentences(documents: Sequence[str]) -> list[str]:
    """Summarize each document by its first sentence, or its first line if that is shorter."""
    return [_SENTENCE_OR_LINE_END.split(document.strip())[0] for document in documents]


def nearest_summaries(
    documents: Sequence[str], known: Sequence[str], summaries: Sequence[str]
) -> list[str]:
    """Return for each document the summary of the most similar known document.

    A document similar to none gets the first summary. This is the score of pure memorization.
    """
    from seqattn.extras.corpora.retrieval import TfidfIndex

    return [summaries[place] for [(place, _)] in TfidfIndex(known).nearest(documents)]
