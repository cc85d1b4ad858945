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


def test_the_attention_suite_writes_tables_pictures_and_json(tmp_path, capsys):
    code, figures = benchmark(
        tmp_path, "suite=attention", "attention.attentions=[mha,xca]", "attention.lengths=[8,16]",
        "attention.dim=16", "attention.num_heads=2", f"attention.plots={tmp_path}/plots",
    )  # fmt: skip
    assert code == 0
    rows = [(row["name"], row["length"]) for row in figures["results"] if not row["causal"]]
    assert rows == [(name, n) for n in (8, 16) for name in ("sdpa", "mha", "xca")]
    assert len(list((tmp_path / "plots").glob("*.png"))) == 4
    assert "x sdpa" in capsys.readouterr().out


def test_the_attention_suite_takes_positions(tmp_path, capsys):
    code, figures = benchmark(
        tmp_path, "suite=attention", "attention.attentions=[mha]", "attention.lengths=[8]",
        "attention.dim=16", "attention.num_heads=2", "attention.positions=[none,deberta]",
    )  # fmt: skip
    assert code == 0
    names = [row["name"] for row in figures["results"] if row["causal"]]
    assert names == ["sdpa", "mha", "mha + deberta"]


def test_the_attention_suite_decodes(tmp_path, capsys):
    code, figures = benchmark(
        tmp_path, "suite=attention", "attention.attentions=[mqa]", "attention.decode=20",
        "attention.dim=16", "attention.num_heads=2",
    )  # fmt: skip
    assert code == 0
    assert [(row["name"], row["cache_bytes"]) for row in figures["results"]] == [("mqa", 1280)]
    assert "late / early" in capsys.readouterr().out


def test_the_recurrent_suite_writes_a_table_and_json(tmp_path, capsys):
    code, figures = benchmark(
        tmp_path, "suite=recurrent", "steps=1", "rounds=1", "max_tokens=128",
        "recurrent.attentions=[bahdanau]", "recurrent.dim=16",
    )  # fmt: skip
    assert code == 0
    rows = [(row["model"], row["loop"]) for row in figures["results"]]
    assert rows == [("bahdanau", "textbook"), ("bahdanau", "seqattn")]
    assert "x textbook" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("data", "names"),
    [
        ("demo_qa", ["a random span of the right length", "the sentence that shares most words"]),
        (
            "demo_summarization",
            ["the first sentence", "the summary of the most similar training document"],
        ),
    ],
)
def test_the_baselines_suite_scores_what_needs_no_model(tmp_path, capsys, data, names):
    code, figures = benchmark(tmp_path, "suite=baselines", f"data={data}", "baselines.split=test")
    assert code == 0
    assert [row["name"] for row in figures["results"]] == names
    assert all(row["split"] == "test" and row["scores"] for row in figures["results"])
    assert f"test by {names[1]}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (
            "suite=speed",
            "must be one of training, decoding, attention, recurrent, baselines, got speed",
        ),
        (
            "suite=recurrent recurrent.attentions=[none]",
            "recurrent.attentions must be of bahdanau, luong_general, luong_concat, got none",
        ),
        ("suite=attention attention.attentions=[mhb]", "there is no attention=mhb"),
        ("suite=attention attention.precisions=[8]", "precisions must be of 32, bf16, got 8"),
        ("suite=attention attention.positions=[rop]", "there is no position=rop"),
        ("suite=baselines data=demo_qa baselines.split=dev", "the dev split must have a file"),
        ("beam=0", "beam must be a whole number above 0"),
        ("steps=0", "steps must be a whole number above 0, got 0"),
        ("sentence=5", "did you mean sentences?"),
        ("rounds=100000", "lower one of them"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_a_line(tmp_path, capsys, argument, message):
    suite = [] if "suite=" in argument else ["suite=training"]
    code, _ = benchmark(tmp_path, *suite, *argument.split())
    error = capsys.readouterr().err
    assert code == 2
    assert message in error.splitlines()[-1]
