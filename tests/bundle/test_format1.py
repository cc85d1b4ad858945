"""Bundles of format 1 load, and say what they said when they were written.

`format1/NAME` was trained for a few steps by the last code that wrote that format, `NAME.json`
holds what that code generated with it.
"""

import json
import shutil
from pathlib import Path

import pytest
import yaml

import seqattn
from seqattn.bundle.files import read_config, write_bundle
from seqattn.bundle.nodes import build
from seqattn.errors import UserError

HOME = Path(__file__).parent / "format1"


@pytest.mark.parametrize("name", ["transformer", "rnn"])
def test_a_bundle_of_format_1_generates_the_same(name, tmp_path):
    expected = json.loads((HOME / f"{name}.json").read_text(encoding="utf-8"))
    loaded = seqattn.load(HOME / name)
    sources = [row["source"] for row in expected]
    outputs = [row["output"] for row in expected]
    assert loaded.generate(sources) == outputs
    found = [best[0].log_probability for best in loaded.hypotheses(sources)]
    assert found == pytest.approx([row["log_probability"] for row in expected], abs=1e-3)
    assert build(loaded.config["task"]["scorer"]).logged

    write_bundle(tmp_path / "new", loaded.config, loaded.model, loaded.tokenizer, loaded.scores)
    assert "seqattn." not in (tmp_path / "new" / "config.yaml").read_text()
    again = seqattn.load(tmp_path / "new")
    assert again.config == loaded.config
    assert again.generate(sources) == outputs


def test_its_ban_on_repeated_words_is_a_processor():
    processors = read_config(HOME / "transformer")["generation"]["processors"]
    target = "seqattn.generation.processors.NoRepeatNgram"
    assert processors == {"no_repeat_ngram": {"_target_": target, "size": 3}}
    assert "processors" not in read_config(HOME / "rnn")["generation"]


@pytest.mark.parametrize(
    ("key", "target", "line"),
    [
        (
            "model",
            "seqattn.cli.main.run_verb",
            "model names 'run_verb', which does not belong there",
        ),
        (
            "model",
            "seqattn.generation.BeamSearch",
            "model names 'BeamSearch', which does not belon",
        ),
        ("model", "os.system", "model names 'os.system', which is not of seqattn"),
        ("attention", 5, "attention names 5, which is not of seqattn"),
        (
            "generation",
            {"_target_": "os.system"},
            "generation names {'_target_': 'os.system'}, whi",
        ),
    ],
)
def test_its_targets_are_names_of_choices_and_nothing_is_imported(tmp_path, key, target, line):
    shutil.copytree(HOME / "transformer", tmp_path / "model")
    file = tmp_path / "model" / "config.yaml"
    document = yaml.safe_load(file.read_text())
    document[key]["_target_"] = target
    file.write_text(yaml.safe_dump(document))
    with pytest.raises(UserError) as error:
        seqattn.load(tmp_path / "model")
    assert str(error.value).startswith(f"{file}: {line}")
