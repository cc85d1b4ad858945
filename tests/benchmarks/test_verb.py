"""The verb on the bundled corpus, and what it refuses."""

import json

import pytest

from seqattn.cli.main import run_verb

TINY = [
    "data=demo_translation", "tokenizer.vocab_size=500", "threads=1",
    "shape.dim=16", "shape.layers=1", "shape.ffn_dim=8", "shape.heads=2",
]  # fmt: skip


def benchmark(tmp_path, *arguments):
    output, cache = tmp_path / "figures.json", tmp_path / "cache"
    code = run_verb("benchmark", [*TINY, f"output={output}", f"cache_dir={cache}", *arguments])
    return code, json.loads(output.read_text()) if output.is_file() else None


@pytest.mark.slow  # two processes that import torch and Lightning
def test_the_training_suite_writes_a_table_and_json(tmp_path, capsys):
    code, figures = benchmark(
        tmp_path, "suite=training", "steps=1", "rounds=1", "max_tokens=128", 'precisions=["32"]'
    )
    assert code == 0
    assert [row["turn"]["loop"] for row in figures["results"]] == [
        "plain", "plain", "seqattn", "seqattn under Lightning",
    ]  # fmt: skip
    assert figures["results"][0]["over_plain"]["median"] == 1.0
    assert "target tokens/s" in capsys.readouterr().out


def test_the_decoding_suite_writes_a_table_and_json(tmp_path, capsys):
    pytest.importorskip("transformers")
    code, figures = benchmark(
        tmp_path, "suite=decoding", "sentences=6", "batch_size=4", "length=3", "beam=2"
    )
    assert code == 0
    assert [(row["beams"], row["sentences"]) for row in figures["results"]] == [(2, 6)]
    assert "MarianMTModel" in capsys.readouterr().out


def test_a_profile_shows_operators(tmp_path, capsys):
    code, figures = benchmark(
        tmp_path, "suite=decoding", "profile=true", "sentences=6", "batch_size=4", "length=3"
    )
    assert code == 0
    assert [row["beams"] for row in figures["results"]] == [1, 5]
    assert "aten::" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("suite=speed", "suite must be training or decoding, got speed"),
        ("beam=0", "beam must be a whole number above 0"),
        ("steps=0", "steps must be a whole number above 0, got 0"),
        ("sentence=5", "did you mean sentences?"),
        ("rounds=100000", "lower one of them"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_a_line(tmp_path, capsys, argument, message):
    suite = [] if argument.startswith("suite=") else ["suite=training"]
    code, _ = benchmark(tmp_path, *suite, argument)
    error = capsys.readouterr().err
    assert code == 2
    assert message in error.splitlines()[-1]
