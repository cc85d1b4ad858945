"""The threshold for no answer, which training chooses."""

from types import SimpleNamespace

import pytest

from seqattn.errors import UserError
from seqattn.extras.answers.outputs import Answers
from seqattn.extras.answers.scorers import QaScorer
from seqattn.extras.answers.span_batch import Questions
from seqattn.extras.answers.span_search import Answer, Answered, SpanSearch
from seqattn.extras.answers.span_setup import SpanSetup
from seqattn.extras.answers.tasks import ExtractiveAnswering
from seqattn.subcommands.evaluate import Evaluation


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
