"""Bundles that answer questions load by their tasks, and answer each with its context."""

import pytest

import seqattn
from seqattn.errors import UserError
from tests.bundle.conftest import configuration, tokenizer, untrained  # noqa: F401


@pytest.mark.parametrize(("model", "task"), [("rnn", "qa_generative"), ("span_rnn", "qa")])
def test_both_kinds_load_and_answer(tmp_path, tokenizer, model, task):  # noqa: F811
    config = configuration(model, task=task)
    found = seqattn.load(untrained(tmp_path / "model", tokenizer, config))
    if model == "rnn":
        assert len(found.generate(["a dog", ""])) == len(found.answer(["a dog"], ["the cat"])) + 1
        assert found.answer("a dog", "the cat") == found.answer(["a dog"], ["the cat"])
    else:
        (answered,) = found.answer("a dog", "the cat sees a dog")
        assert 0 <= answered.no_answer <= 1
    with pytest.raises(
        UserError, match="each question needs a context, got 2 questions and 1 contexts"
    ):
        found.answer(["a dog"] * 2, "the cat")
