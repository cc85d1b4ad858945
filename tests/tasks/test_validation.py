"""What a validation makes outputs of."""

from seqattn.data.batch import collate
from seqattn.generation.base import Hypothesis
from seqattn.metrics.text import TextScorer
from seqattn.tasks.seq2seq import TextValidation


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
