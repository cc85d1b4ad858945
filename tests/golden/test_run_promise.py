"""Runs that hold paths of classes from before these moved are resumed, read and compared.

`run` has the files that a run of version 0.1.0 wrote, its directories replaced by words.
"""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

import seqattn
from seqattn.bundle.files import read_config
from seqattn.config.saved_overrides import nodes_of
from seqattn.installation import CONF
from seqattn.settings.choices import choices
from seqattn.settings.data_paths import with_paths
from seqattn.settings.nodes import import_path
from tests.cli.small import refusal, run, train, train_arguments, write_corpus

EARLIER = Path(__file__).parent / "run"
OF_CORE = {
    "attention.alignment": "Bahdanau Luong NoAlignment",
    "attention.experts": "Balance MixtureOfAttention",
    "attention.heads": "MultiHeadAttention",
    "attention.kernels.features": "PerformerKernel",
    "attention.kernels.lsh": "LSHKernel",
    "attention.kernels.softmax": "SoftmaxKernel",
    "attention.kernels.window": "SlidingWindowKernel",
    "attention.kernels.xca": "XCAKernel",
    "attention.local_alignment": "LuongLocal LuongLocalPredictive",
    "bundle.engine": "PyTorch",
    "cli.jobs": "Jobs",
    "data.options": "LoaderOptions",
    "data.sources": "DemoTranslation Multi30k ParallelText",
    "data.table": "Aeslc DemoSummarization Table",
    "data.vocabulary": "TokenizerConfig TokenizerFiles",
    "generation": "BeamSearch GreedySearch LengthLimit MinimumBayesRisk Sampling",
    "generation.processors": "BadWords EncoderNoRepeatNgram NoRepeatNgram RepetitionPenalty",
    "metrics.rouge": "RougeScorer",
    "metrics.text": "TextScorer",
    "models.recurrent": "RecurrentConfig",
    "models.transformer": "TransformerConfig",
    "positions": "ALiBiPosition DisentangledPosition Position RotaryPosition T5Position",
    "training.adamw_8bit": "adamw_8bit",
    "training.averaging": "MovingAverage",
    "training.checkpoint_options": "CheckpointOptions",
    "training.forcing": "TeacherForcing",
    "training.loggers": "CSVFile MLflowRun TensorBoardRun WandbRun",
    "training.monitors": "GradientHistograms",
    "training.muon": "muon",
    "training.optim": "adamw",
    "training.schedules": "constant cosine inverse_sqrt linear noam",
    "training.task_options": "FinalOptions TextGeneration ValidationOptions",
    "training.train": "Training",
    "training.trainer_options": "TrainerOptions",
    "verbs.evaluate": "Evaluation",
    "verbs.generate": "Generation",
    "verbs.reranking": "Reranking",
}
OF_EXTRAS = {
    "answers": {
        "data.options": "SpanOptions",
        "data.squad": "DemoQA Squad",
        "generation.span_search": "SpanSearch",
        "metrics.qa": "AnswerScorer QaScorer",
        "models.span_recurrent": "SpanRecurrentConfig",
        "models.span_transformer": "SpanTransformerConfig",
        "training.task_options": "ExtractiveAnswering GenerativeAnswering",
    },
    "pictures": {"verbs.analyze": "Analysis"},
    "shards": {"data.shards": "Shards"},
}
"""Classes that version 0.1.0 had in `conf/`, by module, and by the extra that has them now."""


def test_a_name_of_conf_stands_for_one_class():
    texts = (file.read_text(encoding="utf-8") for file in CONF.rglob("*.yaml"))
    paths = {path for text in texts for path in re.findall(r"_target_: *(seqattn\.\S+)", text)}
    names = [path.rpartition(".")[2] for path in paths]
    assert len(names) > 100
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("extra", [None, *OF_EXTRAS])
def test_a_path_of_before_gives_the_class(extra):
    if extra and find_spec(f"seqattn.extras.{extra}") is None:
        pytest.skip(f"there is no {extra}")
    for module, names in (OF_EXTRAS[extra] if extra else OF_CORE).items():
        for name in names.split():
            assert import_path(f"seqattn.{module}.{name}").__name__ == name


def moved(text):
    """A text whose classes were all in a file that is gone."""
    return re.sub(r"(_target_: )seqattn\.[\w.]*?(\w+)(?![\w.])", r"\1seqattn.gone.file.\2", text)


def test_a_run_of_before_is_resumed_and_read(capfd, tmp_path):
    corpus, run_dir = write_corpus(tmp_path / "corpus"), tmp_path / "run"
    words = ["attention=sliding_window", "position=rope", "processor=[no_repeat_ngram]"]
    words = train_arguments(corpus, f"run_dir={run_dir}", *words, "callbacks=[ema]")
    train(words)
    places = {"CORPUS": corpus, "CACHE": tmp_path / "cache", "RUN": run_dir}
    for file in EARLIER.iterdir():
        text = moved(file.read_text(encoding="utf-8"))
        for name, place in places.items():
            text = re.sub(rf"\b{name}\b", str(place), text)
        (run_dir / file.name).write_text(text, encoding="utf-8")
    typed = yaml.safe_load((run_dir / "overrides.yaml").read_text())
    typed.append("loader._target_=seqattn.gone.file.LoaderOptions")
    (run_dir / "overrides.yaml").write_text(yaml.safe_dump(typed))

    same = run(capfd, "train", *words)  # no setting counts as changed
    assert same.code == 0, same.err
    assert "finished" in same.err
    bundle = run_dir / "model"
    assert with_paths(read_config(bundle)["data"], bundle)["root"] == str(corpus)
    refused = refusal(capfd, "train", f"resume={run_dir}", "model.dim=24")
    assert "the run has model.dim=16, but this command has model.dim=24" in refused
    search = nodes_of(str(run_dir), ["generation"], [])["generation"]
    assert search["_target_"] == choices("generation")["beam"]["_target_"]
    resumed = run(capfd, "train", f"resume={run_dir}", "trainer.max_steps=6")
    assert resumed.code == 0, resumed.err
    assert "resuming training" in resumed.err
    assert seqattn.load(bundle).hypotheses(["a dog sees a ball ."], "greedy")


def test_a_run_that_held_out_equal_pairs_alone_still_does(capfd, tmp_path):
    """However often it is resumed, unless the command says how; a new run keeps its own rule."""
    corpus, run_dir = write_corpus(tmp_path / "corpus"), tmp_path / "run"
    words = train_arguments(corpus, f"run_dir={run_dir}", "data.hold_out=6")
    train(words)
    file = run_dir / "config.yaml"
    config = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert config["data"].pop("hold_out_by") == "source"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    for steps in (6, 8):
        assert run(capfd, "train", f"resume={run_dir}", f"trainer.max_steps={steps}").code == 0
        config = yaml.safe_load(file.read_text(encoding="utf-8"))
        assert config["data"]["hold_out_by"] == "pair"
        assert read_config(run_dir / "model")["data"]["hold_out_by"] == "pair"
    same = run(capfd, "train", *words, "trainer.max_steps=8")
    assert same.code == 0, same.err
    assert "finished" in same.err
    refused = refusal(capfd, "train", *words, "data.hold_out_by=source")
    assert "holds a run with data.hold_out_by=pair" in refused
