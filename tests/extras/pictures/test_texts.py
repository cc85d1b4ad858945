"""Pictures of a given text: what they need, and the words that they align."""

import pytest

import seqattn
from seqattn.bundle.files import store
from seqattn.errors import UserError
from seqattn.extras.pictures.texts import draw_text
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
