"""The program on the bundled corpus, and what it refuses."""

import json
from functools import partial

import pytest

from benchmarks.command import main
from tests.benchmarks.small import stand_in

TINY = ["data=demo_translation", "tokenizer.vocab_size=500", "threads=1"]
SHAPE = [f"suite.shape.{size}" for size in ("dim=16", "layers=1", "ffn_dim=8", "heads=2")]
HEADS = "suite.dim=16 suite.num_heads=2"


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Where the vocabulary is, trained once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def benchmark(tmp_path, cache):
    """Runs the program: its exit status, and the figures that it wrote."""
    return partial(run_benchmark, tmp_path / "figures.json", cache)


def run_benchmark(output, cache, *arguments):
    code = main([*TINY, f"output={output}", f"cache_dir={cache}", *arguments])
    return code, json.loads(output.read_text()) if output.is_file() else None


@pytest.mark.exhaustive  # a process that imports torch and Lightning
def test_the_training_suite_writes_a_table_and_json(benchmark, capsys):
    code, figures = benchmark(
        "suite=training", *SHAPE, "suite.steps=1", "suite.rounds=1",
        "suite.max_tokens=[128]", "suite.precisions=[fp32]", "suite.contestants=[seqattn,plain]",
    )  # fmt: skip
    assert code == 0
    assert [row["contestant"] for row in figures["results"]] == [
        "seqattn", "torch.nn.Transformer", "torch.nn.Transformer", "matrix products only",
    ]  # fmt: skip
    assert figures["results"][0]["seqattn speedup"]["median"] == 1.0
    assert figures["threads"] == 1
    assert figures["settings"]["suite"]["shape"]["dim"] == 16
    assert "target tokens/s" in capsys.readouterr().out


def test_the_decoding_suite_writes_a_table_and_json(benchmark, capsys, monkeypatch):
    stand_in(monkeypatch)
    code, figures = benchmark(
        "suite=decoding", *SHAPE, "suite.sentences=6", "suite.contestants=[seqattn,ctranslate2]",
        "suite.length=3", "suite.beams=[2]", "suite.peer_python=null", "suite.rounds=1",
    )  # fmt: skip
    assert code == 0
    rows = [(row["contestant"], row["precision"]) for row in figures["results"]]
    assert rows[:3] == [("seqattn", "fp32"), ("seqattn", "bf16"), ("CTranslate2", "fp32")]
    assert figures["results"][2]["seqattn speedup"]["median"] > 0
    captured = capsys.readouterr()
    assert "skipped CTranslate2 in int8" in captured.err
    assert "Decoding, beam 2, 6 sentences of 3 tokens" in captured.out


def test_the_attention_suite_takes_all_attentions_of_transformers_unless_told(benchmark, capsys):
    code, figures = benchmark(
        "suite=attention", *HEADS.split(), "suite.causal=[false]", "suite.backward=false",
        "suite.rounds=1", "suite.kernel={window: 3}", "suite.lengths=[64]",
    )  # fmt: skip
    assert code == 0
    names = {row["attention"] for row in figures["results"]}
    assert {"sdpa", "mha", "moa", "sliding_window", "linformer", "ring"} <= names
    assert not {"bahdanau", "streaming", "none"} & names


SUITES = {
    "attention": (
        f"{HEADS} suite.attentions=[mha] suite.positions=[none,deberta] suite.causal=[true] "
        "suite.lengths=[8]",
        {"attention": ["sdpa", "mha", "mha + deberta"]},
        "x sdpa",
    ),
    "attention_steps": (
        f"{HEADS} suite.attentions=[mqa] suite.tokens=20",
        {"attention": ["mqa"], "cache (bytes)": [1280]},
        "late / early",
    ),
    "recurrent": (
        "suite.steps=1 suite.rounds=1 suite.max_tokens=[128] suite.alignments=[bahdanau] "
        "suite.dim=16",
        {"model": ["bahdanau", "bahdanau"], "loop": ["textbook", "seqattn"]},
        "x textbook",
    ),
}


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_writes_a_table_and_json(benchmark, capsys, name):
    words, columns, shown = SUITES[name]
    code, figures = benchmark(f"suite={name}", *words.split())
    assert code == 0
    for column, cells in columns.items():
        assert [row[column] for row in figures["results"]] == cells
    assert shown in capsys.readouterr().out


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (
            "demo_qa",
            [
                "random span of the reference length",
                "sentence sharing the most words with the question",
            ],
        ),
        (
            "demo_summarization",
            ["first sentence", "summary of the most similar training document"],
        ),
    ],
)
def test_the_baselines_suite_scores_what_needs_no_model(benchmark, capsys, data, names):
    code, figures = benchmark("suite=baselines", f"data={data}", "suite.split=test")
    assert code == 0
    tables = list(dict.fromkeys(row["table"] for row in figures["results"]))
    assert tables == [f"test: {name}" for name in names]
    assert all(row["score"] and row["signature"] for row in figures["results"])
    assert tables[1] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("suite=speed", "unknown choice suite=speed"),
        ("threads=0", "suite.threads must be a whole number from 1"),
        ("suite=attention suite.dim=1000000000000", "suite.dim must be a whole number from 1 to"),
        ("suite=attention suite.attentions=5", "suite.attentions must be a list such as"),
        ("output=/no/where.json", "the directory of output=/no/where.json does not exist"),
        ("suite=recurrent suite.alignments=[none]", "suite.alignments must be"),
        ("suite=attention suite.attentions=[mhb]", "unknown choice attention=mhb"),
        ("suite=attention suite.positions=[rop]", "unknown choice position=rop"),
        ("suite=baselines data=demo_qa suite.split=dev", "the data has no dev split, only"),
        ("suite=training suite.shape.dim=0", "dim must be a whole number from 1 to"),
        ("suite=training suite.round=5", "did you mean suite.rounds?"),
        (
            "suite=training suite.rounds=100000",
            "lower suite.rounds, suite.steps or suite.max_tokens",
        ),
        ("suite=training tokenizer.joint=false", "set tokenizer.joint=true"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_a_line(benchmark, capsys, argument, message):
    code, _ = benchmark(*argument.split())
    error = capsys.readouterr().err
    assert code == 2
    assert message in error.splitlines()[-1]
