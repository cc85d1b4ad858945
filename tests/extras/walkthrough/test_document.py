"""What the page is given, and what it refuses in words."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import seqattn
from seqattn.errors import UserError
from seqattn.extras.walkthrough import walkthrough
from seqattn.extras.walkthrough.model_document import model_document
from seqattn.extras.walkthrough.walkthrough import data_script, document_of, words_of
from tests.bundle.conftest import configuration, tokenizer, untrained  # noqa: F401
from tests.cli.small import succeed
from tests.extras.walkthrough.conftest import EXAMPLES, demo

REFUSED = {
    "model": ("rnn", "supports only Transformers"),
    "position": ("alibi", "does not support ALiBiPosition; train with position=rope"),
    "attention": ("sigmoid", "does not support encoder.layers.0.self_attention; train with"),
}
SETTINGS = {"norm": "rmsnorm", "pre_norm": False, "activation": "gelu", "copy": True}


@pytest.fixture
def bundle(tmp_path, tokenizer):  # noqa: F811
    def load(**chosen):
        settings = {key: chosen.pop(key) for key in SETTINGS if key in chosen}
        config = configuration(**chosen)
        config["model"] = {**config["model"], **settings}
        return seqattn.load(untrained(tmp_path / "model", tokenizer, config))

    return load


@pytest.mark.parametrize("group", REFUSED)
def test_a_part_that_it_lacks_is_refused_with_what_to_choose(bundle, group):
    choice, text = REFUSED[group]
    with pytest.raises(UserError, match=text):
        model_document(bundle(**{group: choice}))


@pytest.mark.parametrize("key", SETTINGS)
def test_a_setting_that_it_lacks_is_refused(bundle, key):
    with pytest.raises(UserError, match=r"walkthrough (does not support|supports only)"):
        model_document(bundle(**{key: SETTINGS[key]}))


def test_the_weights_are_all_there_once(bundle):
    loaded = bundle(position="learned")
    document = model_document(loaded)
    named = loaded.model.named_parameters()
    whole = sum(one.numel() for name, one in named if "position" not in name)
    table = document["tensors"].pop("target_positions")[1:]
    other = document["tensors"].pop("source_positions")[1:]
    assert table == other == [100, 16]
    numbers = sum(torch.Size(shape).numel() for _, *shape in document["tensors"].values())
    assert numbers == whole


def test_each_side_has_all_pieces_of_its_vocabulary(home):
    bundle = seqattn.load(home / "bundle")
    own, pages = bundle.tokenizer, model_document(bundle)["vocabularies"]
    sides = own.source_vocabulary(), own.target_vocabulary()
    assert [one["pieces"] for one in pages] == [*sides[: len(own.file_names)]]
    assert [len(one["scores"]) for one in pages] == [len(one["pieces"]) for one in pages]


@pytest.mark.skipif(not shutil.which("node"), reason="needs node")
def test_the_page_says_what_generate_says(home):
    bundle = seqattn.load(home / "bundle")
    page = Path(walkthrough.__file__).with_name("page")
    scripts = [(page / name).read_text() for name in ("segment.js", "model.js")]
    scripts.append(f"const model = new Model({json.dumps(model_document(bundle))});")
    scripts.append(f"const outputs = {json.dumps(EXAMPLES)}.map((one) => model.translate(one));")
    scripts.append("console.log(JSON.stringify(outputs.map((one) => one.output)));")
    done = subprocess.run(["node"], input="\n".join(scripts), capture_output=True, encoding="utf-8")
    assert json.loads(done.stdout) == [one.strip() for one in bundle.generate(EXAMPLES, "greedy")]


def test_words_are_those_of_training_without_their_punctuation(bundle):
    document = document_of(bundle(), demo())
    assert 400 < len(document["words"]) == len({*document["words"]}) < 600
    assert "Maria" in document["words"]
    assert all(1 <= len(text) <= 60 for text in document["examples"])
    assert words_of("«Who's there?» 3.5 x-y, _ -") == ["Who's", "there", "3.5", "x-y"]


@pytest.mark.parametrize(("several", "single"), [(1, True), (2, False)])
def test_training_data_have_single_sentences_up_to_a_tenth_of_others(bundle, several, single):
    class Data:
        def stream(self, split):
            return iter(
                [("He runs.", "")] * (10 - several) + [("He runs. She sings.", "")] * several
            )

    assert document_of(bundle(), Data())["single"] == single


def test_an_example_that_is_too_long_is_refused(bundle):
    with pytest.raises(UserError, match="an example has more than 58 tokens: qqqq qqqq"):
        document_of(bundle(), demo(), ["qqqq " * 30])


def test_the_command_writes_one_file_with_words_of_the_bundles_own_data(capfd, trained, tmp_path):
    out = succeed(capfd, "walkthrough", f"bundle={trained}/model", f"output={tmp_path}/new/w.html")
    page = (tmp_path / "new" / "w.html").read_text(encoding="utf-8")
    assert out.startswith(f"walkthrough: {tmp_path}/new/w.html   (")
    assert '"words": ["a", "ball", "birds"' in page
    assert page.count("<script>") == page.count("</script>") == 2


def test_no_text_of_a_document_can_end_its_script():
    assert "<" not in data_script({"words": ["</script>"]})
