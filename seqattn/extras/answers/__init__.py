"""Question answering by spans of a context (task=qa), or in new words (task=qa_generative).

A source of questions (`yields = "questions"`) loads string columns "id", "question" and "context",
and lists "answers" and "starts": the right answers, and the character of the context where each
begins, -1 if it does not occur there; both are empty for a question without an answer.
"""

NEEDS: tuple[str, ...] = ("pictures",)
"""Extras that it imports."""
