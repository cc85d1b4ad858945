"""Whether the choices of a model that marks answers fit each other, said before any work."""

import pytest

from seqattn.errors import UserError
from seqattn.settings.assembly import Architecture
from seqattn.settings.choices import choices
from tests.settings.test_choices import check, config


def test_each_position_and_model_fits():
    for name in choices("position"):
        check("span_transformer", position=name, dim=24, encoder_layers=1, model_layers=1)
    check("span_rnn", dim=24)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            config("span_rnn", "sliding_window"),
            "model=span_rnn does not support attention=sliding_window; ch",
        ),
        (
            config("span_rnn", "bahdanau"),
            "model=span_rnn does not support attention=bahdanau; choose from addi",
        ),
        (
            config("span_transformer", slots=[("decoder", "mha")]),
            "model=span_transformer has no decoder attention; set attention=NAME, or "
            "attention@encoder_attention=NAME and attention@cross_attention=NAME",
        ),
    ],
)
def test_choices_that_do_not_fit_are_refused_with_what_would(given, line):
    with pytest.raises(UserError) as error:
        Architecture.of(given).check()
    assert str(error.value).startswith(line)
