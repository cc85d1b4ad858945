"""What searches and their parts refuse."""

import math

import pytest

from seqattn.checking import BadValue
from seqattn.errors import UserError
from seqattn.generation import BeamSearch, LengthLimit, Sampling
from seqattn.generation.processors import NoRepeatNgram
from seqattn.generation.span_search import SpanSearch

BAD = {
    BeamSearch: {
        "n_best": [0], "beam_size": [0, 100_000], "length_penalty": [-0.1, math.nan],
        "coverage_penalty": [-0.5], "workers": [0],
    },
    Sampling: {"temperature": [0, math.nan], "top_p": [0, 1.1], "top_k": [-1], "n_best": [0]},
    SpanSearch: {"max_answer": [0], "answers": [0], "threshold": [1.5]},
    LengthLimit: {"ratio": [-1.0], "minimum": [-1]},
    NoRepeatNgram: {"size": [0]},
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        (kind, key, x)
        for kind, keys in BAD.items()
        for key, several in keys.items()
        for x in several
    ],
)
def test_a_value_out_of_its_range_is_refused_by_its_name(kind, key, value):
    with pytest.raises(BadValue) as caught:
        kind(**{key: value})
    assert caught.value.key == key


def test_more_outputs_than_beams_are_refused_in_words():
    with pytest.raises(UserError, match=r"^n_best must be from 1 to generation.beam_size \(5\)"):
        BeamSearch(n_best=6)
