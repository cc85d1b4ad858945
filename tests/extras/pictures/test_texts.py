"""Pictures of a given text: what they need, and the words that they align."""

import pytest

import seqattn
from seqattn.bundle.files import store
from seqattn.errors import UserError
from seqattn.extras.pictures.texts import TextPictures, draw_text
from tests.bundle.conftest import configuration, tokenizer, untrained  # noqa: F401
from tests.cli.small import refusal


@pytest.mark.parametrize("words", [["text="], ["text=  "]])
def test_analyze_needs_words(capfd, trained, tmp_path, words):
    bundle = f"bundle={trained / 'model'}"
    text = refusal(capfd, "analyze", bundle, f"output={tmp_path}/out", *words)
    assert text == 'text is empty; set it, for example text="A dog runs."'
    assert refusal(capfd, "analyze", bundle, f"output={tmp_path}/out").startswith("text is empty")
    assert not (tmp_path / "out").exists()
    with pytest.raises(UserError, match="text is empty"):
        draw_text(seqattn.load(trained / "model"), words[0].removeprefix("text="), "a dog")


def test_words_are_aligned_by_the_reading_of_the_bundle(tmp_path, tokenizer):  # noqa: F811
    path = untrained(tmp_path / "model", tokenizer, configuration())
    reading = {"shifted": True, "head": 2, "chosen": "by hand"}
    store(path, {**seqattn.load(path).config, "alignment": reading})
    bundle = seqattn.load(path)
    text, target = "a dog sees the cat", "the cat sees a dog"
    assert draw_text(bundle, text, target, only=()).alignment == bundle.align(text, target)[0]


def test_a_text_that_no_plot_can_show_is_refused_before_a_search(tmp_path, tokenizer, monkeypatch):  # noqa: F811
    bundle = seqattn.load(untrained(tmp_path / "model", tokenizer, configuration()))
    monkeypatch.setattr(type(bundle), "best", lambda *_: pytest.fail("searched"))
    with pytest.raises(UserError, match=r"^text has 40\d tokens, but a plot shows at most 400"):
        TextPictures(bundle).look("a " * 400, "", None, heads=False)
