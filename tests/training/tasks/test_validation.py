"""What a validation makes outputs of, and how they are scored."""

from functools import partial
from types import SimpleNamespace

import pytest

from seqattn.data.base import Texts
from seqattn.data.batch import collate
from seqattn.errors import UserError
from seqattn.extras.answers.outputs import Answers
from seqattn.extras.answers.scorers import QaScorer
from seqattn.extras.answers.span_batch import Questions
from seqattn.extras.answers.span_search import Answer, Answered, SpanSearch
from seqattn.extras.answers.span_setup import SpanSetup
from seqattn.extras.answers.tasks import ExtractiveAnswering
from seqattn.generation.base import Hypothesis
from seqattn.metrics.text import TextScorer
from seqattn.subcommands.evaluate import Evaluation
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


def test_the_threshold_is_found_among_all_answers_whatever_threshold_the_run_has():
    rows = Questions(["?"] * 3, [], [["x"], ["y"], []], ["a", "b", "c"], ["x y"] * 3)
    found = [Answered([Answer(t, 0, 1, 0.3)], p) for t, p in (("x", 0.2), ("y", 0.5), ("y", 0.7))]
    bundle = SimpleNamespace(
        config={"generation": {}},
        outputs=lambda rows, search, _: Answers.of(
            rows, [one.within(search.threshold) for one in found], 1.0
        ),
        search=lambda: SpanSearch(**bundle.config["generation"]),
    )
    run = SimpleNamespace(
        generation=SpanSearch(threshold=0.1), task=SimpleNamespace(scorer=QaScorer())
    )
    scores = SpanSetup.scores(
        SimpleNamespace(bundle=bundle, run=run), "val", rows, None, lambda *_: None
    )
    assert bundle.config["generation"] == {"threshold": 0.5}
    assert scores["val/em"] == 100


def test_a_threshold_that_no_answer_would_meet_is_refused(tmp_path):
    scorer = QaScorer(threshold=0.2)
    with pytest.raises(UserError, match=r"^scorer\.threshold must not be set, as training tunes "):
        ExtractiveAnswering(name="qa", scorer=scorer)
    told = r"remove it, and set generation\.threshold=0\.2$"
    values = {"data": None, "generation": SpanSearch(), "scorer": scorer}
    with pytest.raises(UserError, match=told):
        Evaluation(bundle="none", output=str(tmp_path), **values).run()
