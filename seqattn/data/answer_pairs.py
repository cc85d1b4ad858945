"""Questions on contexts as pairs of texts, for models that write their answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import datasets

from seqattn.data.quiet import quiet_datasets
from seqattn.data.squad import FEATURES, Squad
from seqattn.errors import UserError

NO_ANSWER = "unanswerable"


class AnswerPairs:
    """Questions as pairs of texts, for a model that writes its answers.

    A source is "question: QUESTION context: CONTEXT" as in T5 (Raffel et al. 2020, arXiv
    1910.10683, appendix D), its target the first answer, its references all of them.

    Args:
        questions: where they come from.
        unanswerable: what is said of a question without an answer (the target "unanswerable" and
            that reference alone); False leaves such questions out.
    """

    def __init__(self, questions: Squad, unanswerable: bool = True) -> None:
        self.questions = questions
        self.unanswerable = unanswerable

    def splits(self) -> list[str]:
        """Names the splits that are there."""
        return self.questions.splits()

    def load(self, split: str, cache_dir: Path | None = None) -> datasets.Dataset:
        """Reads a split; see `Source.load`.

        Returns:
            Columns "source", "target" and "references", and beside them the "id", "question",
            "context" and "answers" that a row was made of.

        Raises:
            UserError: as the questions', or none is left.
        """
        rows = self.questions.load(split, cache_dir)
        with quiet_datasets():
            if not self.unanswerable:
                some = [place for place, found in enumerate(rows["answers"]) if found]
                rows = rows.select(some)
            if len(rows) == 0:
                raise UserError(
                    f"the {split} split must hold questions with an answer, it has none"
                )
            return rows.map(
                _as_pairs,
                batched=True,
                remove_columns=["starts"],
                features=_PAIR_FEATURES,
                keep_in_memory=True,
            )

    def report(self) -> list[str]:
        """As the questions' own."""
        return self.questions.report()


_PAIR_FEATURES = datasets.Features(
    {
        **{name: feature for name, feature in FEATURES.items() if name != "starts"},
        "source": datasets.Value("string"),
        "target": datasets.Value("string"),
        "references": datasets.Sequence(datasets.Value("string")),
    }
)


def question_source(question: str, context: str) -> str:
    """Gives the text from which a model writes an answer."""
    return f"question: {question} context: {context}"


def _as_pairs(rows: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    references = [_distinct(answers) or [NO_ANSWER] for answers in rows["answers"]]
    columns = zip(rows["question"], rows["context"], strict=True)
    return {
        "source": [question_source(question, context) for question, context in columns],
        "target": [texts[0] for texts in references],
        "references": references,
    }


def _distinct(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))
