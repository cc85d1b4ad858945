"""What a validation makes outputs of, and how they are scored."""

import pytest

from seqattn.data.batch import collate
from seqattn.errors import UserError
from seqattn.generation.base import Hypothesis
from seqattn.generation.span_search import SpanSearch
from seqattn.metrics.qa import QaScorer
from seqattn.metrics.text import TextScorer
from seqattn.training.task_options import ExtractiveAnswering
from seqattn.training.tasks.seq2seq import TextValidation
from seqattn.verbs.evaluate import Evaluation


class Echo:
    """Says what it reads."""

    def generate(self, sources):
        return [[Hypothesis(tuple(source), 0.0, 0.0)] for source in sources]


def test_every_window_of_a_source_has_an_output_of_its_own():
    def decode(several):
        return [" ".join(map(str, ids)) for ids in several]

    plan = TextValidation(Echo(), TextScorer(), decode, lambda: [["a"], ["b"], ["c"]], limit=2)
    batch = collate([[4, 5, 3], [6, 3], [7, 3], [8, 9, 3]], [[4, 3]] * 4, index=[1, 1, 2, 0])
    made = [(one.row, one.hypothesis, one.references) for one in plan.samples(batch)]
    assert made == [(1, "4 5 3", ["b"]), (1, "6 3", ["b"]), (0, "8 9 3", ["a"])]


def test_a_threshold_that_no_answer_would_meet_is_refused(tmp_path):
    scorer = QaScorer(threshold=0.2)
    with pytest.raises(UserError, match=r"^scorer\.threshold must be left out, training finds "):
        ExtractiveAnswering(name="qa", scorer=scorer)
    told = r"leave scorer\.threshold out, and set generation\.threshold=0\.2$"
    values = {"data": None, "generation": SpanSearch(), "scorer": scorer}
    with pytest.raises(UserError, match=told):
        Evaluation(bundle="none", output=str(tmp_path), **values).run()
