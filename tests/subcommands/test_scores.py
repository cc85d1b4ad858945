"""How scores are written down and shown."""

import pytest

from seqattn.errors import UserError
from seqattn.metrics.text import TextScore
from seqattn.subcommands.evaluate import Evaluation, plain_scores, score_rows

SCORES = [TextScore("ROUGE-1", 25.5, "nrefs:1", (24.25, 26.75)), TextScore("EM", 3.0, "norm:x")]


def test_scores_are_written_with_their_signatures_and_intervals():
    assert plain_scores(SCORES) == {
        "ROUGE-1": {"value": 25.5, "signature": "nrefs:1", "interval": [24.25, 26.75]},
        "EM": {"value": 3.0, "signature": "norm:x"},
    }


def test_a_row_of_the_table_shows_an_interval_where_there_is_one():
    assert score_rows(SCORES) == {
        "ROUGE-1": "25.50 (24.25 to 26.75)   nrefs:1",
        "EM": "3.00   norm:x",
    }


def test_groups_need_the_counts_of_each_row():
    class Whole:
        """A scorer of the corpus alone."""

    with pytest.raises(UserError, match="group needs a scorer with the method sentences"):
        Evaluation(bundle="RUN", data=None, generation=None, scorer=Whole(), group="source")
