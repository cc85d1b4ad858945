"""ROUGE by the `rouge-score` package, and the novelty of summaries."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import chain
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Le
from rouge_score import rouge_scorer
from rouge_score.tokenizers import DefaultTokenizer

from seqattn.errors import UserError
from seqattn.metrics.references import References, reference_lists
from seqattn.metrics.scripts import other_script, script_words
from seqattn.metrics.significance import Floats, SentenceCounts
from seqattn.metrics.text import Scorer, TextScore

KINDS = {"ROUGE-1": "rouge1", "ROUGE-2": "rouge2", "ROUGE-L": "rougeL", "ROUGE-Lsum": "rougeLsum"}
_LONGEST_NOVEL = 3


@dataclass(frozen=True)
class RougeScorer(Scorer):
    """ROUGE scores of summaries (Lin 2004).

    Words are those of `rouge-score`: runs of a-z and 0-9 after lowercasing. For a reference with
    letters mostly of another script, or without any such run, they are those of `script_words`, and
    the signature contains `words:script`. ROUGE-Lsum treats each line as a sentence; without line
    breaks it equals ROUGE-L.

    Args:
        stemmer: stem words of more than three letters with Porter's stemmer, as most papers do.
        resamples: bootstrap resamples for 95% intervals; 0 for no intervals.
        seed: seed of the bootstrap.
    """

    logged: ClassVar[tuple[str, ...]] = tuple(KINDS.values())
    stemmer: bool = True
    resamples: Annotated[int, Ge(0), Le(100_000)] = 1000
    seed: Annotated[int, Ge(0)] = 0

    def measures(self, hypotheses: Sequence[str], references: References) -> Floats:
        """Return each summary's F1, from 0 to 100.

        Args:
            hypotheses: N summaries.
            references: a text for each, or a list of texts; of several, each measure uses the one
                with the best F1, as `rouge_score`'s `score_multi` does.

        Returns:
            (N, 4), the columns in the order of `KINDS`.

        Raises:
            UserError: as in `reference_lists`.
        """
        kinds, texts = list(KINDS.values()), reference_lists(references, len(hypotheses))
        scorers = {
            False: rouge_scorer.RougeScorer(kinds, use_stemmer=self.stemmer),
            True: rouge_scorer.RougeScorer(kinds, tokenizer=_ScriptWords(self.stemmer)),
        }
        scores = []
        for row, hypothesis in zip(texts, hypotheses, strict=True):
            found = [scorers[other_script(text)].score(text, hypothesis) for text in row]
            scores.append([100 * max(one[kind].fmeasure for one in found) for kind in kinds])
        return np.array(scores, np.float64).reshape(-1, len(KINDS))

    def score(
        self,
        hypotheses: Sequence[str],
        references: References,
        sources: Sequence[str] | None = None,
    ) -> list[TextScore]:
        """Score the summaries of a corpus.

        Args:
            hypotheses, references: as for `measures`.
            sources: the N summarized texts; None for no novelty scores.

        Returns:
            The mean F1 of ROUGE-1, -2, -L and -Lsum, each with its interval; then, with `sources`,
            the percentage of 1-, 2- and 3-grams that do not occur in the source, for the summaries
            ("novel 1-grams") and for the references ("novel 1-grams of references").

        Raises:
            UserError: there are no summaries, or as for `measures`.
        """
        if not hypotheses:
            raise UserError("there are no summaries to score")
        texts = reference_lists(references, len(hypotheses))
        counts, words = {len(row) for row in texts}, _words(chain.from_iterable(texts))
        signature = (
            f"nrefs:{counts.pop() if len(counts) == 1 else 'var'}|measure:f1|agg:mean|"
            f"stem:{'yes' if self.stemmer else 'no'}|lsum:lines|{words}"
            f"version:{version('rouge-score')}"
        )
        scores = [
            TextScore(one.name, one.score, signature, one.interval(self.resamples, self.seed))
            for one in self.sentences(hypotheses, texts)
        ]
        return scores if sources is None else scores + _novelty(hypotheses, texts, sources)

    def sentences(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> list[SentenceCounts]:
        """Return ROUGE-1, -2, -L and -Lsum; see `Scorer.sentences`."""
        return SentenceCounts.of_means(list(KINDS), self.measures(hypotheses, references))


class _ScriptWords(DefaultTokenizer):  # type: ignore[misc]
    """Tokenizer for scripts other than Latin; words of a-z and 0-9 are as in `rouge-score`."""

    def tokenize(self, text: str) -> list[str]:
        words: list[str] = []
        for word in script_words(text):
            words += super().tokenize(word) if word.isascii() else [word]
        return words


def _words(texts: Iterable[str]) -> str:
    """Return the signature's entry for words: empty if all are those of `rouge-score`."""
    return "words:script|" if any(map(other_script, texts)) else ""


def novel_share(texts: Iterable[str], sources: Iterable[str], n: int) -> float:
    """Return the share of n-grams that do not occur in the source of their text, 0 to 1.

    Words are ROUGE's, unstemmed, by the script of the source. Occurrences are counted over all
    texts; without any the share is 0.
    """
    tokenizers = {False: DefaultTokenizer(False), True: _ScriptWords(False)}

    def grams(text: str, script: bool) -> list[tuple[str, ...]]:
        words = tokenizers[script].tokenize(text)
        return list(zip(*(words[start:] for start in range(n)), strict=False))

    novel: list[bool] = []
    for text, source in zip(texts, sources, strict=True):
        script = other_script(source)
        known = set(grams(source, script))
        novel += [gram not in known for gram in grams(text, script)]
    return sum(novel) / max(1, len(novel))


def _novelty(
    hypotheses: Sequence[str], references: list[list[str]], sources: Sequence[str]
) -> list[TextScore]:
    if len(sources) != len(hypotheses):
        raise UserError(
            f"each summary must have a source, got {len(hypotheses):,} summaries and "
            f"{len(sources):,} sources"
        )
    written = [text for row in references for text in row]
    # repeat each source for each of its references
    theirs = [source for row, source in zip(references, sources, strict=True) for _ in row]
    script = _words(sources)
    signature = f"per:n-grams|case:lc|stem:no|{script}version:{version('rouge-score')}"
    return [
        TextScore(f"novel {n}-grams{whose}", 100 * novel_share(*texts, n), signature)
        for n in range(1, _LONGEST_NOVEL + 1)
        for whose, texts in (("", (hypotheses, sources)), (" of references", (written, theirs)))
    ]
