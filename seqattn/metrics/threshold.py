"""From which probability of no answer on a question is best left unanswered."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from seqattn.errors import UserError
from seqattn.metrics.qa import check_complete, check_probabilities, exact_match, f1


class Threshold(NamedTuple):
    """Which no-answer probability is too much to answer, and the score that this gives."""

    value: float
    """A question whose probability lies above it is left unanswered; -1 leaves all so."""
    score: float
    """From 0 to 100, on the questions where it was found."""


_MEASURES: Mapping[str, Callable[[str, Iterable[str]], float]] = {"em": exact_match, "f1": f1}


def best_threshold(
    predictions: Mapping[str, str],
    questions: Mapping[str, Sequence[str]],
    no_answer: Mapping[str, float],
    measure: str = "f1",
) -> Threshold:
    """Finds the no-answer threshold that scores best (Rajpurkar et al. 2018, arXiv 1806.03822).

    Search on a dev set and apply what is found to another; where the same set is scored with it,
    as the official "best F1" does, the score flatters.

    Args:
        predictions: each question's best answer, by id.
        questions: each question's gold answers, by id; none for an unanswerable one.
        no_answer: each question's probability of having no answer, 0 to 1.
        measure: "em" or "f1", what is to be best.

    Returns:
        The lowest of the best thresholds. Questions of one probability are answered or left
        together, so that its score is what applying it gives; the official script parts them.

    Raises:
        UserError: another measure, or a question without a prediction or a probability.
    """
    if measure not in _MEASURES:
        raise UserError(f"measure must be one of {', '.join(_MEASURES)}, got {measure!r}")
    check_complete(predictions, questions, "prediction")
    check_probabilities(no_answer, questions)
    score = _MEASURES[measure]
    gains: dict[float, float] = {}
    for name, answers in questions.items():
        gain = score(predictions[name], answers) - score("", answers)
        gains[no_answer[name]] = gains.get(no_answer[name], 0.0) + gain
    total = sum(score("", answers) for answers in questions.values())
    best = Threshold(-1.0, total)
    for value in sorted(gains):
        total += gains[value]
        if total > best.score:
            best = Threshold(value, total)
    return Threshold(best.value, 100 * best.score / len(questions))
