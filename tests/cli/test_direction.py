"""A metric of which less is better, from checkpoints to comparisons."""

import json

import pytest

from seqattn.cli.jobs import _best
from seqattn.metrics.text import TextScorer
from seqattn.training.task_options import TextGeneration
from tests.cli.small import checkpoint, data_of, logged, succeed, train, train_arguments
from tests.metrics.error_scorer import ErrorScorer

OWN = (
    "task.scorer._target_=tests.metrics.error_scorer.ErrorScorer",
    "~task.scorer.tokenize",
    "~task.scorer.lowercase",
)


@pytest.fixture(scope="module")
def runs(corpus, tmp_path_factory):
    """Two trainings, the second of which learns nothing."""
    home = tmp_path_factory.mktemp("direction")
    for name, rate in (("learnt", 0.01), ("untaught", 1e-9)):
        words = train_arguments(
            corpus, *OWN, "checkpoint.monitor=val/ter", f"optimizer.lr={rate}", steps=60, every=20
        )
        train([*words, f"run_dir={home}/{name}"])
    return home


def test_the_checkpoint_of_the_least_error_is_kept(runs):
    values = {
        int(row["step"]): float(row["val/ter"])
        for row in logged(runs / "learnt")
        if row.get("val/ter")
    }
    assert len(set(values.values())) > 1
    state = checkpoint(runs / "learnt")["callbacks"]["TrainingLoop"]
    assert state["Monitored"]["best"] == pytest.approx(min(values.values()))
    [kept] = state["Checkpoints"]["kept"]
    assert kept[0] == pytest.approx(min(values.values()))


def test_compare_puts_the_least_error_first(runs, capfd, tmp_path):
    words = f"runs=[{runs}/untaught,{runs}/learnt]", f"output={tmp_path}/out", "split=val"
    succeed(capfd, "compare", *words, "trust=[tests]")
    figures = json.loads((tmp_path / "out" / "figures.json").read_text())
    values = {name: one["mean"] for name, one in figures["metrics"][0]["systems"].items()}
    assert list(values.values()) == sorted(values.values())
    assert values["optimizer.lr=0.01"] < values["optimizer.lr=1e-09"]


def test_tuning_takes_the_least_error(runs, corpus, capfd, tmp_path):
    bundle = (f"bundle={runs}/learnt/model", "trust=[tests]", *data_of(corpus), "split=val")
    grid = ("tune.length_penalty=[0.0,2.0]", "tune.limit.extra=[0,9]")
    succeed(capfd, "evaluate", *bundle, *grid, f"output={tmp_path}/tuned")
    trials = json.loads((tmp_path / "tuned" / "tuning.json").read_text())["trials"]
    values = [trial["scores"]["TER"]["value"] for trial in trials]
    assert values == sorted(values)
    assert values[0] < values[-1]


def test_monitors_say_which_way_is_better():
    def task(scorer):
        return TextGeneration(name="mine", scorer=scorer).monitors

    assert task(ErrorScorer())["val/ter"] == task(ErrorScorer())["val/loss"] == "min"
    assert task(TextScorer())["val/bleu"] == task(TextScorer())["val/accuracy"] == "max"


def test_the_best_job_of_a_sweep_has_the_least():
    node = {"_target_": "tests.metrics.error_scorer.ErrorScorer"}
    rows = {"0": {"val/ter": 30.0}, "1": {"val/ter": 20.0}}
    jobs = [{"checkpoint": {"monitor": "val/ter"}, "task": {"scorer": node}}] * 2
    assert _best(jobs, rows) == "1"
    other = {**jobs[0], "checkpoint": {"monitor": "val/loss"}}
    assert _best([jobs[0], other], rows) is None  # chosen by another measure
