"""Answers of a bundle to one question, and their place in the context."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from seqattn.extras.report.attention_maps import attention_documents
from seqattn.extras.report.document_types import AnswerLookDocument

ANSWERS = 5


@dataclass(frozen=True)
class QuestionLook:
    """Documents of a bundle's answers, one question at a time.

    Args:
        bundle: bundle that answers by spans of the context.
        search: rules for valid spans.
        tokens: attention maps show at most the first N tokens per side.
    """

    bundle: Any
    search: Any
    tokens: int
    score: ClassVar[str] = "F1"
    """Name of an output's score."""
    measure: ClassVar[str] = ""
    """No source use."""

    @classmethod
    def of(
        cls, bundles: Sequence[Any], search: Any, methods: Sequence[str], tokens: int
    ) -> list["QuestionLook"]:
        """Return a look into each bundle. Args: as for the class; methods: only for texts."""
        return [cls(bundle, search, tokens) for bundle in bundles]

    def document(self, text: str, answers: Sequence[str], context: str) -> AnswerLookDocument:
        """Return the bundle's answers. Args: answers: correct ones, [] for no answer."""
        windows = self.bundle.windows(self.search, text, context)
        reads = [window.read for window in windows]
        answered = replace(self.search, answers=ANSWERS).choose(reads, context)
        best = max(windows, key=lambda window: float(window.read.spans.amax() - window.read.none))
        pieces = self.bundle.tokenizer.source_pieces
        answer_rows: Any = [answer._asdict() for answer in answered.answers]
        return {
            "question": self.bundle.question_pieces(best.question, text),
            "context": pieces(best.context),
            "output": answered.best,
            "score": 100 * self.bundle.f1(answered.best, answers),
            "source_use": None,
            "notes": self._notes(windows, best),
            "attentions": [*attention_documents(best.maps, self.tokens, best.row)],
            "answers": answer_rows,
            "no_answer": answered.no_answer,
            "tokens": self.search.token_probabilities(reads),
        }

    def _notes(self, windows: Sequence[Any], best: Any) -> list[str]:
        notes = []
        if len(windows) > 1:
            notes.append(
                f"read in {len(windows)} windows; showing weights of the one with the most likely "
                "answer"
            )
        if len(best.context) > self.tokens:
            notes.append(f"attention maps show the first {self.tokens} tokens of each side")
        return notes
