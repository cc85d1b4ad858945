"""Question answering by spans of a context (task=qa), or in new words (task=qa_generative)."""

NEEDS: tuple[str, ...] = ("pictures",)
"""Extras that it imports."""
