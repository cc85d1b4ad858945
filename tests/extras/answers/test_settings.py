"""Settings of questions: choices that fit each other, and what suits them."""

import pytest

from tests.cli.small import composed
from tests.config import test_configs as configs


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
