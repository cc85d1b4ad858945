"""The search for a model: its space, its plan, its race, and what it writes."""

import json
import shlex
from itertools import pairwise
from typing import ClassVar

import pytest
import yaml

from seqattn.bundle.architecture import Vocabularies
from seqattn.errors import UserError
from seqattn.extras.search import search_halving
from seqattn.extras.search.search_budget import Budget
from seqattn.extras.search.search_halving import Halving
from seqattn.extras.search.search_report import write_experiment
from seqattn.extras.search.search_space import SearchSpace
from seqattn.extras.search.search_trials import (
    Rung,
    SearchState,
    Trial,
    behind,
    curve_of,
    left_of,
    said_last,
)
from tests.cli.small import composed

SMALL = ("model.dim=12", "model.ffn_dim=20", "model.encoder_layers=1", "model.decoder_layers=1")
NODES = ("model", "attention", "position", "encoder_attention", "decoder_attention")


@pytest.fixture(scope="module")
def settings():
    return composed("train", *SMALL)[0]


def test_a_candidate_is_the_model_that_its_overrides_make(settings):
    space = SearchSpace(["mha", "lsh", "streaming"], heads=[2, 3], window=[5], position=["rope"],
                        depth=[[2, 1]], width=[18])  # fmt: skip
    drawn = space.draw(settings, lambda combinations: combinations, seed=1)
    kinds = {one.name.partition(" ")[0]: one for one in drawn.candidates}
    assert set(kinds) == {"as", "mha", "lsh", "streaming"}
    for candidate in kinds.values():
        made = composed("train", *SMALL, *candidate.overrides)[0]
        assert candidate.nodes == {n: made[n] for n in NODES if made.get(n) is not None}


def test_what_cannot_be_is_counted_by_its_reason_and_what_is_the_same_is_tried_once(settings):
    space = SearchSpace(["mha", "mqa", "linear"], heads=[4, 5], kv_heads=[1, 4])
    drawn = space.draw(settings, lambda combinations: combinations, seed=1)
    assert drawn.combinations == 12
    assert drawn.refused == {"num_heads must divide query_dim (12), got 5": 6}
    assert drawn.same == 2  # mqa is mha with one key head
    assert len(drawn.candidates) == 4
    assert drawn.candidates[0].name in ("mha 4h 4kv (as given)", "mqa 4h 4kv (as given)")
    assert drawn.candidates[0].overrides == ()


def test_each_attention_has_its_turn_and_windows_are_for_those_that_have_one(settings):
    space = SearchSpace(without=["ring", "mha"], heads=[2, 4, 6], window=[3, 9])
    drawn = space.draw(settings, lambda combinations: 17, seed=3)
    kinds = [one.name.split()[0] for one in drawn.candidates[1:]]
    assert len(kinds) == 16
    assert len(set(kinds[:14])) == 14  # all that the model takes, but two
    windows = {one.name.split()[0] for one in drawn.candidates if "window=" in str(one.overrides)}
    assert windows == {"sliding_window", "streaming"}


def test_a_recurrent_model_varies_no_heads_and_no_positions():
    found = composed("train", "model=rnn", "model.dim=12", "attention=luong_dot")[0]
    space = SearchSpace(["luong_dot", "luong_local_m"], heads=[2, 3], window=[3, 4],
                        position=["rope", "t5"])  # fmt: skip
    drawn = space.draw(found, lambda combinations: combinations, seed=1)
    names = [one.name for one in drawn.candidates]
    assert sorted(names) == ["luong_dot (as given)", "luong_local_m w3", "luong_local_m w4"]


def test_a_candidate_knows_its_size(settings):
    space = SearchSpace(["mqa"], heads=[4])
    (own, mqa) = space.draw(settings, lambda n: n, seed=1).candidates
    few, many = (one.sizes(Vocabularies(30, 30, True)) for one in (mqa, own))
    assert (few["cache_bytes"], many["cache_bytes"]) == (2 * 3 * 32 * 4, 2 * 12 * 32 * 4)
    # keys and values of 3 attentions shrink from 12 to 3
    assert many["parameters"] - few["parameters"] == 3 * 2 * 9 * (12 + 1)


def test_a_model_that_ends_before_the_cache_is_measured_has_parameters_alone():
    found = composed("train", *SMALL, "position=learned", "position.max_length=32")[0]
    own = SearchSpace(["mqa"], heads=[4]).draw(found, lambda n: n, seed=1).candidates[0]
    assert own.sizes(Vocabularies(30, 30, True)).keys() == {"parameters"}


@pytest.mark.parametrize("key", ["attention", "without", "position"])
def test_a_name_that_is_not_there_is_refused_with_the_nearest(key):
    with pytest.raises(UserError, match=f"{key} names ropo, which is not there"):
        SearchSpace(**{key: ["ropo"]})


@pytest.mark.parametrize(
    ("candidates", "counts"), [(27, [27, 9, 3]), (12, [12, 3]), (4, [4, 3]), (3, [3])]
)
def test_a_plan_uses_up_the_time_it_is_given(candidates, counts):
    budget = Budget(finalists=3, seeds=2)
    steps = budget.plan(candidates, step=0.5, start=10.0, seconds=9000.0)
    assert budget.counts(candidates) == counts
    assert [round(b / a) for a, b in pairwise(steps)] == [3] * (len(counts) - 1)
    starts, work = budget.work(counts, [0, *steps])
    assert 0.99 * 9000 < 10 * starts + 0.5 * work <= 9000
    last = counts[-1] * steps[-1]  # the second seeds train from the start
    assert work == last + sum(n * (b - a) for n, a, b in zip(counts, [0, *steps], steps))


def test_a_loser_is_above_the_upper_quartile_of_those_that_went_further():
    others = [{10: 5.0 + n, 20: 4.0 + n} for n in (0.0, 0.2, 0.4, 0.6, 0.8)]  # quartile 5.6, 4.6
    told = behind({10: 5.5, 20: 4.8}, others, after=20)
    assert told.endswith(
        "20 its training loss 5.150 was above the upper quartile 5.100 of 5 others"
    )
    assert behind({10: 5.5, 20: 4.6}, others, after=20) == ""
    assert behind({10: 9.0}, others, after=20) == ""
    assert behind({10: 9.0, 20: 9.0}, others[:3], after=20) == ""


def test_what_a_candidate_chooses_takes_the_place_of_what_the_run_was_told():
    words = ["data.root=x", "attention.dropout=0.1", "encoder_attention.num_heads=2", "position=t5",
             "attention@cross_attention=gqa", "model.dim=8", "position.buckets=4"]  # fmt: skip
    assert left_of(words, ["attention=mha", "model.dim=9"]) == [
        "data.root=x", "position=t5", "position.buckets=4"
    ]  # fmt: skip
    assert left_of(words, ["position=rope"]) == [words[0], words[1], words[2], words[4], words[5]]
    assert left_of(words, []) == words


def test_a_process_that_died_says_why(tmp_path):
    log = tmp_path / "log.txt"
    log.write_text("training\nerror: data.root=x is not there\n  \nbye\n")
    assert said_last(log, 2) == "data.root=x is not there"
    assert said_last(log, -9).startswith("killed by the system")
    log.write_text("Traceback\nMemoryError: 3 GB\n")
    assert said_last(log, 1) == "MemoryError: 3 GB"


LOSSES = {"a": 3.0, "b": 2.0, "c": 1.0, "d": 4.0, "e": 5.0, "f": 6.0}


class Fake:
    """A process that is done at once, with a loss by its trial's name."""

    started: ClassVar = []
    interrupts = None

    def __init__(self, trial, home, steps, warmup, words, options, limit):
        self.trial, self.steps = trial, steps
        Fake.started.append((trial.name, trial.seed, steps))

    def ended(self):
        if len(Fake.started) == Fake.interrupts:
            Fake.interrupts = None
            raise KeyboardInterrupt
        if self.trial.name == "f":
            self.trial.state, self.trial.why = "failed", "out of memory"
        else:
            self.trial.steps = self.steps
            self.trial.losses[self.steps] = LOSSES[self.trial.name] / self.steps
            self.trial.seconds = self.steps * 0.01
        return True

    def stop(self, *args):
        pass


@pytest.fixture
def race(tmp_path, monkeypatch):
    monkeypatch.setattr(search_halving, "Process", Fake)
    monkeypatch.setattr(search_halving.time, "sleep", lambda seconds: None)
    Fake.started = []
    budget = Budget(minutes=1, steps=[2, 6], finalists=2)
    return Halving(tmp_path, begun(), budget, 2, [])


def begun():
    """What is known before the first of two rungs."""
    caches = {"a": 9, "b": 9, "c": 9, "d": 4, "e": 9, "f": 1}
    return SearchState(
        rungs=[Rung(steps=2, trials=list(LOSSES)), Rung(steps=6)],
        pilot={"step": 0.01, "start": 0.1, "warmup": 1},
        trials={n: Trial(name=n, overrides=[], seed=1, cache_bytes=caches[n]) for n in LOSSES},
    )


def test_the_best_go_on_with_more_seeds_and_one_that_fails_stops_nobody(race):
    assert race.run() == ["c", "c-seed2", "d", "d-seed2"]  # d has the smallest cache
    assert [one for one in Fake.started if one[2] == 6] == [
        ("c", 1, 6), ("d", 1, 6), ("c", 2, 6), ("d", 2, 6)
    ]  # fmt: skip
    assert race.state.trials["f"].why == "out of memory"
    assert SearchState.read(race.home) == race.state


def test_a_single_rung_has_all_its_seeds(race):
    race.state.rungs = [Rung(steps=2, trials=["a", "b"])]
    race.add_seeds(race.state.rungs[0])
    assert race.run() == ["b", "b-seed2", "a", "a-seed2"]


def test_a_search_that_was_stopped_goes_on_where_it_was(race, tmp_path):
    race.run()
    whole = race.state.model_copy(update={"spent": 0.0})
    Fake.started, began = [], begun()
    Fake.interrupts = 8
    with pytest.raises(KeyboardInterrupt):
        Halving(tmp_path, began, race.budget, 2, []).run()
    before = len(Fake.started)
    again = Halving(tmp_path, SearchState.read(tmp_path), race.budget, 2, [])
    again.run()
    assert again.state.model_copy(update={"spent": 0.0}) == whole
    assert len(Fake.started) - before <= 4
    assert again.state.spent >= began.spent


def test_steps_shrink_where_models_are_slower_than_the_first(race):
    race.budget = Budget(minutes=1, finalists=2)
    for trial in race.state.trials.values():
        trial.losses, trial.steps, trial.seconds = {2: 1.0}, 2, 2 * 7.0
    race._fit(1, ["a", "b"])
    assert race.state.rungs[1].steps == 2 + round(4 * (54 * 2 - 0.1 * 4) / (7.0 * (2 * 4 + 2 * 6)))


def test_too_little_time_is_said_with_what_would_do(race):
    race.budget, race.state.pilot["step"] = Budget(minutes=1, finalists=2), 3.0
    with pytest.raises(UserError, match=r"budget\.minutes=1 is too little: here a step takes 3"):
        race.most(6)
    race.state.pilot["step"] = 0.02
    assert race.most(6) == 6


def test_the_best_is_an_experiment_on_top_of_that_of_the_run(tmp_path):
    best = Trial(name="gqa", seed=1, overrides=[
        "attention=mha", "attention@encoder_attention=lsh", "encoder_attention.num_heads=2",
        "model.dim=18",
    ])  # fmt: skip
    words = {"experiment": "demo", "data": "multi30k", "data.root": "x", "model.dim": 12,
             "attention.dropout": 0.1}  # fmt: skip
    command = write_experiment(tmp_path, best, [f"{k}={v}" for k, v in words.items()], words)
    assert command == f"python train.py --config-dir {tmp_path}/conf experiment=found"
    text = (tmp_path / "conf/experiment/found.yaml").read_text()
    assert text.startswith("# @package _global_\n")
    assert yaml.safe_load(text) == {
        "defaults": [
            "demo",
            {"override /data": "multi30k"},
            {"override /attention": "mha"},
            {"override /attention@encoder_attention": "lsh"},
            "_self_",
        ],
        "data": {"root": "x"},
        "encoder_attention": {"num_heads": 2},
        "model": {"dim": 18},
    }


def test_a_curve_of_a_run_that_goes_on_leaves_out_a_line_that_is_cut(tmp_path):
    (tmp_path / "csv/version_0").mkdir(parents=True)
    lines = "step,train/loss,val/loss\n9,5.5,\n19,4.5,\n19,,4.7\n29,4."
    (tmp_path / "csv/version_0/metrics.csv").write_text(lines)
    assert curve_of(tmp_path) == {10: 5.5, 20: 4.5}
    assert curve_of(tmp_path / "none") == {}


def test_a_state_that_is_damaged_is_named(tmp_path):
    (tmp_path / "trials.json").write_text(json.dumps({"rungs": 5}))
    with pytest.raises(UserError, match=r"trials.json cannot be read; name another run_dir"):
        SearchState.read(tmp_path)


def test_the_best_is_trained_with_the_folders_of_choices_that_the_search_had(tmp_path):
    home, options = tmp_path / "a b", ["--config-dir", "own", "hydra.searchpath=[file://more]"]
    command = write_experiment(home, Trial(name="mha", seed=1, overrides=[]), [], {}, options)
    path = 'hydra.searchpath=["file://own",file://more]'
    given = ["train.py", "--config-dir", f"{home}/conf", path, "experiment=found"]
    assert shlex.split(command) == ["python", *given]
