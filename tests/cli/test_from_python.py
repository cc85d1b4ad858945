"""Training from Python, with words and plain values."""

import pytest

import seqattn
from seqattn.errors import UserError
from tests.cli.small import train_arguments


def values_of(corpus, **values):
    """The small training as plain values by key."""
    words = train_arguments(corpus, steps=2)
    return words, {"seed": 3, "model.layer_drop": 0, "logger": ["csv"], **values}


def test_words_and_plain_values_are_those_of_the_command(corpus, tmp_path):
    home = tmp_path / "a, b's [ö]"
    words, values = values_of(corpus, run_dir=home, **{"+trainer.lightning.detect_anomaly": True})
    result = seqattn.train(*words, "attention=gqa", **values, init_from=None)
    assert (result.steps, result.run_dir) == (2, home)
    config = seqattn.load(result.bundle).config
    assert (config["seed"], config["attention"]["num_kv_heads"]) == (3, 2)
    assert config["choices"]["attention"] == "gqa"
    assert (home / "csv" / "version_0" / "metrics.csv").is_file()
    assert seqattn.train(*words, "attention=gqa", **values) == result  # which is finished


@pytest.mark.parametrize(
    ("words", "values", "line"),
    [
        (["attention=gqaa"], {}, "unknown choice attention=gqaa; did you mean gqa?"),
        ([], {"model.dmi": 3}, "unknown key model.dmi; did you mean model.dim?"),
        ([], {"model.dim": -3}, "model.dim must be a whole number from 1 to 65,536, got -3"),
        ([], {"model.dim": "3"}, "model.dim must be a whole number"),
        ([], {"data": object()}, "data must be a plain value, got a object"),
        (["find_lr=true"], {}, "find_lr=true needs the command line"),
        (["~seed"], {}, "missing required key seed"),
        ([], {"resume": "nowhere"}, "resume=nowhere is not a run"),
    ],
)
def test_what_the_command_refuses_is_refused_in_its_line(
    words, values, line, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as error:
        seqattn.train(*words, **values)
    assert str(error.value).startswith(line)
    assert not list(tmp_path.rglob("*"))
