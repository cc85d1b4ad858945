"""What a validation makes outputs of, and how they are scored."""

from functools import partial
from types import SimpleNamespace

import pytest

from seqattn.data.base import Texts
from seqattn.data.batch import collate
from seqattn.generation.base import Hypothesis
from seqattn.metrics.text import TextScorer
from seqattn.training.setup import Setup
from seqattn.training.tasks.seq2seq import generated
from seqattn.training.tasks.settings import Validation


class Echo:
    """Says what it reads."""

    def generate(self, sources):
        return [[Hypothesis(tuple(source), 0.0, 0.0)] for source in sources]


def test_every_window_of_a_source_has_an_output_of_its_own():
    def decode(several):
        return [" ".join(map(str, ids)) for ids in several]

    outputs = partial(generated, Echo(), decode)
    plan = Validation(outputs, TextScorer(), lambda: [["a"], ["b"], ["c"]], limit=2)
    batch = collate([[4, 5, 3], [6, 3], [7, 3], [8, 9, 3]], [[4, 3]] * 4, index=[1, 1, 2, 0])
    made = [(one.row, one.hypothesis, one.references) for one in plan.samples(batch)]
    assert made == [(1, "4 5 3", ["b"]), (1, "6 3", ["b"]), (0, "8 9 3", ["a"])]


@pytest.mark.parametrize(("sentences", "longest"), [(2, 2), (0, 4)])
def test_only_what_is_scored_has_to_be_read(sentences, longest):
    bundle = SimpleNamespace(encode=lambda texts: [[[4] * len(text)] for text in texts])
    scored = {"test": Texts(["a", "bb", "cccc"], [], [], None)}
    setup = SimpleNamespace(
        bundle=bundle, scored=scored, final=SimpleNamespace(sentences=sentences)
    )
    assert Setup.scored_lengths(setup) == {"test": longest}
