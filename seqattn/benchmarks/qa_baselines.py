"""What answers are worth that need no model: a sentence that sounds alike, a span by chance."""

import random
import re
from collections.abc import Sequence

_WORD = re.compile(r"\w+")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+")


def best_sentences(questions: Sequence[str], contexts: Sequence[str]) -> list[str]:
    """Answers each question with the sentence of its context that shares most words with it.

    Words count once each, in lower case; of sentences that share as many the first is taken.

    Args:
        questions: N.
        contexts: the context of each.

    Returns:
        N sentences, "" of an empty context.
    """
    return [_best(*pair) for pair in zip(questions, contexts, strict=True)]


def _best(question: str, context: str) -> str:
    asked = _words(question)
    sentences = _SENTENCE_END.split(context.strip())
    return max(sentences, key=lambda sentence: len(asked & _words(sentence)))


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))


def random_spans(
    contexts: Sequence[str], answers: Sequence[Sequence[str]], seed: int = 0
) -> list[str]:
    """Answers each question with words of its context by chance, as many as its answer has.

    Args:
        contexts: N.
        answers: right answers of each; the first says how many words, none says no answer.
        seed: of the chance.

    Returns:
        N spans, "" where there is no answer or no word.
    """
    chance = random.Random(seed)
    return [_span(*pair, chance) for pair in zip(contexts, answers, strict=True)]


def _span(context: str, answers: Sequence[str], chance: random.Random) -> str:
    words = list(_WORD.finditer(context))
    if not answers or not words:
        return ""
    length = min(len(words), max(1, len(_WORD.findall(answers[0]))))
    first = chance.randrange(len(words) - length + 1)
    return context[words[first].start() : words[first + length - 1].end()]
