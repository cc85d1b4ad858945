"""Settings of questions: choices that fit each other, and what suits them."""

import pytest

from seqattn.settings.choices import choices
from tests.cli.small import composed
from tests.config import test_configs as configs
from tests.settings.test_choices import check, config
from tests.settings.test_choices import (
    test_choices_that_do_not_fit_are_refused_with_what_would as refused,
)

SPAN_TRANSFORMER = {"dim": 24, "encoder_layers": 1, "model_layers": 1}


def test_each_position_and_model_fits():
    for name in choices("position"):
        check("span_transformer", position=name, **SPAN_TRANSFORMER)
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
def test_what_does_not_fit_is_refused(given, line):
    refused(given, line)


@pytest.mark.parametrize(
    ("words", "kind", "position"),
    [
        (["task=qa_generative"], "bpe", "Sinusoidal"),
        (["task=qa"], "bpe", ""),
        (["task=qa", "model=span_transformer"], "bpe", "Rotary"),
        (["task=qa", "model=span_transformer", "position=alibi"], "bpe", "ALiBi"),
        (["task=qa", "tokenizer=unigram"], "unigram", ""),
        (["experiment=squad_rnn", "data.root=x"], "unigram", ""),
        (["experiment=squad_transformer", "data.root=x"], "unigram", "Rotary"),
    ],
)
def test_choices_have_the_tokenizer_and_positions_that_suit_them(words, kind, position):
    configs.test_choices_have_the_tokenizer_and_positions_that_suit_their_data(
        words, kind, position
    )


def test_a_gpu_takes_larger_batches_in_fewer_epochs():
    settings = composed("train", "trainer=gpu", "task=qa")[0]
    assert (settings["loader"]["max_tokens"], settings["loader"]["num_workers"]) == (2048, 4)
    assert settings["trainer"]["max_epochs"] == 6
