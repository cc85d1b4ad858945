"""How a training starts from a bundle, what sweeps tell, own callbacks, names and hints."""

import json
import subprocess
import sys

import pytest
import torch
import yaml
from safetensors.torch import load_file

from seqattn.training.train import Training
from tests.cli.small import checkpoint, composed, refusal, run, succeed, train, train_arguments

SHAPE = ("attention", "position", "model.", "tokenizer")


def without_shape(corpus, *words, **length):
    """Arguments of a training that say nothing of the model."""
    return [
        word for word in train_arguments(corpus, *words, **length) if not word.startswith(SHAPE)
    ]


@pytest.fixture(scope="module")
def shaped(corpus):
    """A bundle of slots of its own and a list of attentions."""
    home = corpus.parent / "shaped"
    own = ("attention=[gqa,mha]", "attention@encoder_attention=sliding_window", "position=rope")
    heads = ("attention.num_heads=4", "encoder_attention.kernel.window=5")
    words = (*own, *heads, "model.norm=rmsnorm", f"run_dir={home}", "model.decoder_layers=2")
    train(train_arguments(corpus, *words, steps=1, every=1))
    return home


NODES = ("model", "attention", "encoder_attention", "cross_attention", "position")


def test_a_start_from_a_bundle_has_its_model_and_only_what_is_typed_differs(
    capfd, corpus, shaped, tmp_path
):
    words = (f"init_from={shaped}/model", f"run_dir={tmp_path}/run")
    words = without_shape(corpus, *words, steps=1, every=1)
    succeed(capfd, "train", *words, "model.dropout=0.3")
    before, after = (
        yaml.safe_load((one / "config.yaml").read_text()) for one in (shaped, tmp_path / "run")
    )
    assert after["model"].pop("dropout") == 0.3
    del before["model"]["dropout"]
    for node in NODES:
        assert after.get(node) == before.get(node), node
    chosen = {group: name for group, name in before["choices"].items() if "attention" in group}
    assert chosen.items() <= after["choices"].items()


def test_a_run_that_started_from_a_bundle_resumes_without_it(capfd, corpus, shaped, tmp_path):
    bundle = tmp_path / "moved"
    (shaped / "model").rename(bundle)
    try:
        words = (f"init_from={bundle}", f"run_dir={tmp_path}/run")
        succeed(capfd, "train", *without_shape(corpus, *words, steps=1, every=1))
    finally:
        bundle.rename(shaped / "model")
    succeed(capfd, "train", f"resume={tmp_path}/run", "trainer.max_steps=2")
    assert checkpoint(tmp_path / "run")["global_step"] == 2


def test_a_typed_choice_stands_in_place_of_the_bundle_s(shaped):
    settings, chosen = composed("train", f"init_from={shaped}/model", "position=alibi")
    assert settings["position"]["_target_"].endswith("ALiBiPosition")
    assert (chosen["position"], chosen["model"]) == ("alibi", "transformer")


def test_a_name_does_not_lead_out_of_the_folder_of_runs(capfd):
    said = refusal(capfd, "train", "name=../../x")
    assert said.startswith("name must not point outside the directory of runs, got runs/../../x/")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("lr=0.1", "optimizer.lr"),
        ("batch_size=32", "loader.max_tokens"),
        ("dropout=0.1", "attention.dropout or model.dropout"),
        ("optimiser.lr=0.1", "optimizer"),
    ],
)
def test_a_hint_is_about_what_was_meant(capfd, word, meant):
    wrong = word.partition("=")[0].partition(".")[0]
    assert refusal(capfd, "train", word) == f"unknown key {wrong}; did you mean {meant}?"


def test_a_schedule_that_cannot_be_is_refused_before_the_vocabulary_is_trained(
    capfd, corpus, tmp_path
):
    given = (f"data.root={corpus}", f"cache_dir={tmp_path}/cache", f"run_dir={tmp_path}/run")
    words = ("experiment=multi30k_tiny", "trainer.max_steps=20", *given)
    said = refusal(capfd, "train", *words)
    assert said.startswith("schedule.total_steps must be above schedule.warmup_steps (500), got 20")
    assert not (tmp_path / "cache").exists()


def test_a_sweep_ends_with_a_line_for_each_job_the_best_marked(capfd, corpus, tmp_path):
    words = ("optimizer.lr=0,0.01", f"run_dir={tmp_path}/sweep")
    ended = run(capfd, "train", "-m", *train_arguments(corpus, *words, steps=2))
    assert ended.code == 0, ended.err
    announced = [line for line in ended.err.splitlines() if line.startswith("job ")]
    assert announced == ["job 0 (1 of 2): optimizer.lr=0", "job 1 (2 of 2): optimizer.lr=0.01"]
    head, *lines = (tmp_path / "sweep" / "jobs.tsv").read_text().splitlines()
    assert head.startswith("job\tbest\toverrides\t")
    assert [line.split("\t")[:3] for line in lines] == [
        ["0", "", "optimizer.lr=0"],
        ["1", "best", "optimizer.lr=0.01"],
    ]
    scores = json.loads((tmp_path / "sweep/1/model/scores.json").read_text())
    assert lines[1].split("\t")[head.split("\t").index("val/loss")] == str(scores["val/loss"])
    accuracy = f"{scores['val/accuracy']:.1%}"
    shown = ("1 best", "optimizer.lr=0.01", "val/loss", accuracy)
    assert all(found in ended.out.partition("1 best")[2] or found in ended.out for found in shown)


def test_a_sweep_s_table_has_what_any_job_scored(capfd, corpus, tmp_path):
    words = ("task.final.splits=[],[val]", f"run_dir={tmp_path}/sweep")
    succeed(capfd, "train", "-m", *train_arguments(corpus, *words, steps=1, every=1))
    table = [x.split("\t") for x in (tmp_path / "sweep" / "jobs.tsv").read_text().splitlines()]
    head, without, scored = table
    assert without[head.index("val/bleu")] == ""
    assert float(scored[head.index("val/bleu")]) >= 0
    assert all(one[head.index("val/loss")] for one in (without, scored))
    searches = [
        json.loads((tmp_path / f"sweep/{job}/model/scores.json").read_text()).get("search")
        for job in (0, 1)
    ]
    assert searches == [None, "beam search, beam_size=2"]


def test_every_job_that_crashes_says_why(capfd, corpus, tmp_path, monkeypatch):
    def crashed(run):
        raise ZeroDivisionError(f"a bug with seed {run.seed}")

    monkeypatch.setattr(Training, "run", crashed)
    words = (f"run_dir={tmp_path}/sweep", "seed=1,2")
    ended = run(capfd, "train", "-m", *train_arguments(corpus, *words))
    assert ended.code == 2
    assert "ZeroDivisionError: a bug with seed 1" in ended.err
    assert "ZeroDivisionError: a bug with seed 2" in ended.err
    assert ended.err.splitlines()[-1] == "error: jobs 0, 1 failed (messages above)"


def test_a_multirun_goes_on_with_no_single_run(capfd, corpus, trained, tmp_path):
    words = (f"resume={trained}", f"run_dir={tmp_path}/sweep", "seed=1,2")
    ended = run(capfd, "train", "-m", *train_arguments(corpus, *words))
    assert ended.code == 2
    assert f"job 1: resume={trained} and -m are mutually exclusive" in ended.err


# --- callbacks ----------------------------------------------------------------------------------


AVERAGED = ("callbacks=[ema]", "callbacks.ema.decay=0.5")


def test_a_moving_average_resumes_to_the_bit_and_goes_into_the_bundle(capfd, corpus, tmp_path):
    for name, steps in (("whole", 4), ("cut", 2)):
        words = (*AVERAGED, f"run_dir={tmp_path}/{name}")
        succeed(capfd, "train", *train_arguments(corpus, *words, steps=steps))
    succeed(capfd, "train", f"resume={tmp_path}/cut", "trainer.max_steps=4")
    one, other = (checkpoint(tmp_path / name) for name in ("whole", "cut"))
    for state in ("state_dict", "current_model_state"):
        assert all(torch.equal(one[state][name], other[state][name]) for name in one[state])
    bundles = [load_file(tmp_path / n / "model" / "model.safetensors") for n in ("whole", "cut")]
    for name, weight in bundles[0].items():
        assert torch.equal(weight, bundles[1][name])
        assert torch.equal(weight, one["state_dict"][f"model.{name}"])  # the average ...
    raw = one["current_model_state"]
    assert any(not torch.equal(w, raw[f"model.{n}"]) for n, w in bundles[0].items())  # not a step


def test_a_run_goes_on_without_its_moving_average_from_the_weights_of_its_last_step(
    capfd, corpus, tmp_path
):
    succeed(capfd, "train", *train_arguments(corpus, f"run_dir={tmp_path}/whole", steps=4))
    words = (*AVERAGED, f"run_dir={tmp_path}/cut")
    succeed(capfd, "train", *train_arguments(corpus, *words, steps=2))
    succeed(capfd, "train", f"resume={tmp_path}/cut", "callbacks=[]", "trainer.max_steps=4")
    one, other = (checkpoint(tmp_path / name)["state_dict"] for name in ("whole", "cut"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_moving_average_is_the_recurrence(capfd, corpus, tmp_path):
    averages, steps = [], []
    for count in (1, 2):
        words = (*AVERAGED, f"run_dir={tmp_path}/{count}")
        succeed(capfd, "train", *train_arguments(corpus, *words, steps=count, every=1))
        found = checkpoint(tmp_path / str(count))
        averages.append(found["state_dict"])
        steps.append(found["current_model_state"])
    for name, weight in steps[0].items():
        assert torch.equal(averages[0][name], weight)  # it begins with the first step
        expected = (averages[0][name].double() + steps[1][name].double()) / 2
        assert torch.allclose(averages[1][name].double(), expected, atol=1e-5)


def test_callbacks_of_a_person_s_own_configuration_are_called(capfd, corpus, tmp_path):
    group = tmp_path / "conf" / "callbacks"
    group.mkdir(parents=True)
    own = {"_target_": "lightning.pytorch.callbacks.ModelCheckpoint", "_partial_": True}
    mine = {"each": {**own, "dirpath": "${run_dir}/mine", "every_n_train_steps": 1}}
    (group / "mine.yaml").write_text(yaml.safe_dump(mine))
    words = train_arguments(corpus, "callbacks=[mine]", f"run_dir={tmp_path}/run", steps=2)
    succeed(capfd, "train", "--config-dir", str(tmp_path / "conf"), *words)
    [kept] = (tmp_path / "run" / "mine").iterdir()
    assert kept.name == "epoch=0-step=2.ckpt"


@pytest.mark.parametrize(
    ("own", "text"),
    [
        (
            "{a:5}",
            "callbacks.a must be a config node with _partial_: true",
        ),
        (
            "{a:{_target_:fractions.Fraction,_partial_:true}}",
            "callbacks.a must create a",
        ),
        ("{a:{_target_:lightning.pytorch.callbacks.Timer,_partial_:true,interval:x}}", "callbacks"),
    ],
)
def test_what_is_no_callback_is_refused(capfd, corpus, tmp_path, own, text):
    words = train_arguments(corpus, f"+callbacks={own}", f"run_dir={tmp_path}/run")
    assert refusal(capfd, "train", *words).startswith(text)
    assert not (tmp_path / "run").exists()


def test_a_profile_says_where_the_time_goes(capfd, corpus, tmp_path):
    words = ("trainer.profiler=simple", f"run_dir={tmp_path}/run")
    succeed(capfd, "train", *train_arguments(corpus, *words, steps=1, every=1))
    assert "optimizer_step" in (tmp_path / "run" / "fit-profile.txt").read_text()


def test_a_sweep_of_joblib_that_is_interrupted_leaves_its_processes_the_time_to_save(tmp_path):
    program = f"""
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
from omegaconf import OmegaConf
from seqattn.cli.jobs import Jobs
launcher = {{"_target_": "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher"}}
hydra = {{"sweep": {{"dir": {str(tmp_path)!r}}}, "launcher": launcher, "overrides": {{"task": []}},
         "sweeper": {{"_target_": "None"}}}}
Jobs().on_multirun_start(OmegaConf.create({{"hydra": hydra}}))
try:
    os.kill(os.getpid(), signal.SIGINT)
finally:  # where joblib kills them
    print("killed", flush=True)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "stopped\n")
