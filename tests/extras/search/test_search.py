"""The search for a model: its space, its halving, and what its journal may hold."""

import json
import math
import os
from types import SimpleNamespace
from typing import ClassVar

import pytest

from seqattn.errors import UserError
from seqattn.extras.search import search_report, search_runs, search_study
from seqattn.extras.search.search import ModelSearch
from seqattn.extras.search.search_budget import Budget
from seqattn.extras.search.search_journal import JOURNAL
from seqattn.extras.search.search_runs import command, last_line, losses, unchanged
from seqattn.extras.search.search_space import Candidate, SearchSpace, applied
from seqattn.extras.search.search_study import Halving
from tests.cli.small import composed

SMALL = ("model.dim=12", "model.ffn_dim=20", "model.encoder_layers=1", "model.decoder_layers=1")
NODES = ("model", "attention", "position", "encoder_attention", "decoder_attention")


@pytest.fixture(scope="module")
def settings():
    return composed("train", *SMALL)[0]


# --- the space ----------------------------------------------------------------------------------


def test_a_candidate_is_the_model_that_its_overrides_make(settings):
    space = SearchSpace(["mha", "lsh", "streaming"], heads=[2, 3], window=[5], position=["rope"],
                        depth=[[2, 1]], width=[18])  # fmt: skip
    drawn = space.draw(settings, None, seed=1)
    kinds = {one.name.partition(" ")[0]: one for one in drawn.candidates}
    assert set(kinds) == {"as", "mha", "lsh", "streaming"}
    for candidate in kinds.values():
        made = composed("train", *SMALL, *candidate.overrides)[0]
        expected = {n: made[n] for n in NODES if made.get(n) is not None}
        assert applied(candidate.overrides, settings) == expected


def test_what_cannot_be_is_counted_by_its_reason_and_what_is_the_same_is_tried_once(settings):
    space = SearchSpace(["mha", "mqa", "linear"], heads=[4, 5], kv_heads=[1, 4])
    drawn = space.draw(settings, None, seed=1)
    assert drawn.lines == [
        "models: 4 of 12 combinations",
        "6 skipped: attention.num_heads must divide model.dim (12), got 5",
        "1 skipped: same as another model",  # mqa is mha with one key head
    ]
    assert drawn.candidates[0].name in ("mha 4h 4kv (as given)", "mqa 4h 4kv (as given)")
    assert drawn.candidates[0].overrides == ()


def test_each_attention_has_its_turn_and_windows_are_for_those_that_have_one(settings):
    others = ["additive", "differential", "hopfield", "sigmoid", "softcap", "talking_heads"]
    space = SearchSpace(without=["ring", "mha", *others], heads=[2, 4, 6], window=[3, 9])
    drawn = space.draw(settings, 17, seed=3)
    kinds = [one.name.split()[0] for one in drawn.candidates[1:]]
    assert len(kinds) == 16
    assert len(set(kinds[:14])) == 14  # all that the model takes, but two
    windows = {one.name.split()[0] for one in drawn.candidates if "window=" in str(one.overrides)}
    assert windows == {"sliding_window", "streaming"}


def test_a_recurrent_model_varies_no_heads_and_no_positions():
    recurrent = composed("train", "model=rnn", "model.dim=12", "attention=luong_dot")[0]
    space = SearchSpace(["luong_dot", "luong_local_m"], heads=[2, 3], window=[3, 4],
                        position=["rope", "t5"])  # fmt: skip
    names = [one.name for one in space.draw(recurrent, None, seed=1).candidates]
    assert sorted(names) == ["luong_dot (as given)", "luong_local_m w3", "luong_local_m w4"]


def test_an_empty_list_of_attentions_is_the_run_s_own_model_alone(settings):
    drawn = SearchSpace([], heads=[2, 3], position=["rope"]).draw(settings, None, seed=1)
    assert drawn.candidates == [Candidate("as given")]


@pytest.mark.parametrize("key", ["attention", "without", "position"])
def test_a_name_that_is_not_there_is_refused_with_the_nearest(key):
    with pytest.raises(UserError, match=f"{key} contains the unknown choice ropo"):
        SearchSpace(**{key: ["ropo"]})


@pytest.mark.parametrize(
    "ends", [[1], [2.0, 1.0], [1, 1], "12", [0, math.inf], [True, 2], ["a", 1]]
)
def test_a_range_has_a_lowest_and_a_highest_number(ends):
    with pytest.raises(UserError, match=r"ranges.optimizer.lr must be \[MIN,MAX\]"):
        SearchSpace(ranges={"optimizer.lr": ends})


@pytest.mark.parametrize(
    ("key", "ends", "why"),
    [
        ("optimizer.lrr", [0, 1], "space.ranges.optimizer.lrr must name a key with a floating"),
        ("model.dim", [8, 16], "space.ranges.model.dim must name a key with a floating"),
        ("data", [0, 1], "space.ranges.data must name a key with a floating"),
        ("model.dropout", [0.1, 1.5], "model.dropout must be a number of at least 0 and below 1"),
    ],
)
def test_a_range_is_of_a_number_that_the_run_can_take(settings, key, ends, why):
    with pytest.raises(UserError, match=why):
        SearchSpace([], ranges={key: ends}).draw(settings, None, seed=1)


def test_a_full_training_is_several_times_the_first_steps():
    with pytest.raises(UserError, match=r"budget.steps must be a multiple of budget.first_steps"):
        Budget(first_steps=100, steps=250)
    with pytest.raises(UserError, match="twice as large, got 100 and 100"):
        Budget(first_steps=100, steps=100)


# --- training runs ------------------------------------------------------------------------------


def test_what_a_candidate_chooses_takes_the_place_of_what_the_run_was_told():
    words = ["data.root=x", "attention.dropout=0.1", "encoder_attention.num_heads=2", "position=t5",
             "attention@cross_attention=gqa", "model.dim=8", "position.buckets=4"]  # fmt: skip
    assert unchanged(words, ["attention=mha", "model.dim=9"]) == [
        "data.root=x", "position=t5", "position.buckets=4"
    ]  # fmt: skip
    assert unchanged(words, ["position=rope"]) == [words[0], words[1], words[2], words[4], words[5]]
    assert unchanged(words, []) == words


def test_a_run_has_the_schedule_of_the_user_with_its_warm_up_before_the_first_halving(settings):
    search = ModelSearch(run_dir="x", settings=settings, budget=Budget(first_steps=20, steps=60),
                         overrides=["schedule=cosine", "schedule.warmup_steps=90"])  # fmt: skip
    words = command(search, Candidate("a", ("attention=mqa",)), search_runs.Path("it's"), 5)
    assert words[:3] == ["train", "schedule=cosine", "attention=mqa"]
    assert {"run_dir='it\\'s'", "seed=5", "trainer.max_steps=60", "trainer.val_check_interval=20",
            "schedule.warmup_steps=10"} <= set(words)  # fmt: skip


def test_a_process_that_died_says_why(tmp_path):
    log = tmp_path / "log.txt"
    log.write_text("training\nerror: data.root=x is not there\n  \nbye\n")
    assert last_line(log) == "data.root=x is not there"
    log.write_text("Traceback\nMemoryError: 3 GB\n")
    assert last_line(log) == "MemoryError: 3 GB"


def test_losses_of_a_run_that_goes_on_leave_out_a_line_that_is_cut(tmp_path):
    (tmp_path / "csv/version_0").mkdir(parents=True)
    lines = "step,train/loss,val/loss\n9,5.5,\n19,,4.5\n29,3.5,\n39,,4.7\n49,4."
    (tmp_path / "csv/version_0/metrics.csv").write_text(lines)
    assert losses(tmp_path) == {20: 4.5, 40: 4.7}
    assert losses(tmp_path / "none") == {}


# --- halving ------------------------------------------------------------------------------------


MQA = ("attention=mqa", "attention.num_heads=4", "attention.num_kv_heads=1")
LOSSES = {"a": 2.0, "b": 3.0, "c": 1.0, "d": 4.0, "e": 5.0, "f": 6.0, "g": 7.0}
MODELS = [Candidate(name, MQA if name == "b" else ()) for name in LOSSES]


class FakeRun:
    """A training run that is done at once, with a loss by its model's name."""

    started: ClassVar = []
    interrupted_at = None
    failing = ("f",)

    def __init__(self, name, run_dir, command):
        self.name, self.run_dir = name, run_dir
        self.step, self.loss = 0, math.nan
        self.process = SimpleNamespace(terminate=int, join=lambda *_: None, kill=int)
        run_dir.mkdir(parents=True, exist_ok=True)
        FakeRun.started.append(run_dir.name)

    def new_losses(self):
        if len(FakeRun.started) == FakeRun.interrupted_at:
            raise KeyboardInterrupt
        for step in () if self.name in FakeRun.failing else (2, 4, 6):
            if step > self.step:
                self.step, self.loss = step, LOSSES[self.name[0]] / step
                yield step, self.loss
        if self.step == 6:
            (self.run_dir / "result.yaml").touch()

    def has_ended(self):
        return True

    def failure(self):
        return "failed: out of memory" if self.name in FakeRun.failing else ""


@pytest.fixture
def halving(tmp_path, monkeypatch, settings):
    """Make a search on fake runs; called again it goes on."""
    monkeypatch.setattr(search_study, "TrainingRun", FakeRun)
    monkeypatch.setattr(search_runs.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(FakeRun, "started", [])
    monkeypatch.setattr(FakeRun, "interrupted_at", None)

    def make(models=MODELS, space=None, made_from=None, **budget):
        budget = Budget(1, first_steps=2, steps=6, finalists=2, **budget)
        search = ModelSearch(run_dir=str(tmp_path), settings=settings, budget=budget,
                             space=space or SearchSpace())  # fmt: skip
        return Halving(search, models, 1, made_from or {"seed": 1})

    return make


def test_the_better_models_go_on_and_the_finalists_train_with_more_seeds(halving):
    race = halving()
    race.try_models()
    assert FakeRun.started == [*LOSSES]
    steps = {name: trial.last_step for name, trial in race.latest().items()}
    assert steps == {"a": 6, "b": 2, "c": 6, "d": 2, "e": 2, "f": None, "g": 2}
    whys = {name: trial.user_attrs.get("why") for name, trial in race.latest().items()}
    assert (whys["a"], whys["b"], whys["f"]) == (
        None,
        "not in the best 1/3",
        "failed: out of memory",
    )
    race.train_finalists()
    # of the better half b has the smallest cache, and goes on from where it was stopped
    assert FakeRun.started[len(LOSSES) :] == ["b", "c-seed2", "b-seed2"]
    runs = race.runs_of_finalists()
    assert [one.name for one in runs] == ["c", "b"]
    assert [path.name for path in runs[MODELS[1]]] == ["b", "b-seed2"]


def whole(race):
    race.try_models()
    race.train_finalists()
    return race


@pytest.mark.parametrize("number", range(1, 11))
def test_a_search_that_was_stopped_goes_on_where_it_was(halving, number):
    FakeRun.interrupted_at = number
    with pytest.raises(KeyboardInterrupt):
        whole(halving())
    FakeRun.interrupted_at = None
    again = whole(halving())
    assert {one.name for one in again.runs_of_finalists()} == {"b", "c"}
    assert len(FakeRun.started) == 11  # one of them twice
    whole(halving())
    assert len(FakeRun.started) == 11


def test_a_search_ends_in_its_minutes_and_goes_on_with_more(halving):
    race = halving()
    race._earlier = 31.0
    race.save()
    race.try_models()
    assert FakeRun.started == []
    with pytest.raises(UserError, match="no model reached its first validation"):
        race.train_finalists()
    again = halving()
    assert again.seconds_spent >= 31.0
    again._earlier = 29.0
    again.try_models()
    assert len(FakeRun.started) == len(LOSSES)
    again._earlier = 55.0
    again.train_finalists()
    assert len(FakeRun.started) == len(LOSSES)
    assert [one.name for one in again.runs_of_finalists()] == ["c"]


def test_the_table_has_the_last_figures_of_finalists_and_none_of_what_was_not_measured(
    halving, monkeypatch, capsys
):
    race = halving()
    race.try_models()
    said = capsys.readouterr().err
    assert "f · step 0 of 6 · failed: out of memory" in said
    assert "nan" not in said
    race.train_finalists()
    final = {2: 1.5, 4: 1.2, 6: 0.9}
    monkeypatch.setattr(search_report, "losses", lambda run_dir: final)
    rows = search_report.tried_models(race, {MODELS[1]: [race.run_dir]})["rows"]
    assert rows[:3] == [["c", 6, "0.167", None], ["a", 6, "0.333", None], ["b", 6, "0.900", None]]
    assert rows[-1] == ["f", None, None, "failed: out of memory"]


def test_a_search_whose_own_model_fails_ends(halving, monkeypatch):
    monkeypatch.setattr(FakeRun, "failing", ("a",))
    with pytest.raises(UserError, match="the run's own model failed: out of memory"):
        halving().try_models()


def test_ranges_are_sampled_the_run_s_own_values_first(halving, settings):
    space = SearchSpace([], ranges={"optimizer.lr": [1e-5, 1e-2], "model.dropout": [0.2, 0.4]})
    race = halving([Candidate("as given")], space, candidates=5)
    race.try_models()
    tried = [race.candidate(trial.params) for trial in race.latest().values()]
    assert len(tried) == len({one.name for one in tried}) == 5
    lr = settings["optimizer"]["lr"]
    assert tried[0].name == f"as given lr={lr:g} dropout=0.2"  # the nearest to its own 0.1
    assert tried[0].overrides == (f"optimizer.lr={lr:.2e}", "model.dropout=2.00e-01")
    values = [float(word.partition("=")[2]) for one in tried for word in one.overrides]
    assert all(1e-5 <= lr <= 1e-2 for lr in values[::2])
    assert all(0.2 <= dropout <= 0.4 for dropout in values[1::2])
    again = halving([Candidate("as given")], space, candidates=7)
    again.try_models()
    assert len(again.latest()) == 7  # other values than those of before


# --- the journal --------------------------------------------------------------------------------


def test_half_a_line_at_the_end_of_a_journal_is_what_a_kill_leaves(halving, tmp_path):
    halving().try_models()
    with (tmp_path / JOURNAL).open("a") as file:
        file.write('{"op_code": 5, "trial')
    again = halving()
    assert len(again.latest()) == len(LOSSES)
    again.save()
    assert all(json.loads(line) for line in (tmp_path / JOURNAL).read_text().splitlines())


def test_a_directory_of_another_search_is_refused(halving, tmp_path):
    halving()
    with pytest.raises(
        UserError, match=f"run_dir={tmp_path} holds a search with different seed; use"
    ):
        halving(made_from={"seed": 2})
    halving(seeds=3)


DAMAGES = [
    ("", '{"op_code":0'),
    ("", "[]\n"),
    ("", '{"op_code":99,"worker_id":""}\n'),
    ("", '{"op_code":4}\n'),
    ("", '{"op_code":2,"worker_id":"","study_id":7,"user_attr":{}}\n'),
    ("", "\x80\x04cos\nsystem\n(S'touch ran'\ntR.\n"),
    ("", '{"op_code":2,"worker_id":"","study_id":0,"user_attr":{"spent":"long"}}\n'),
    ("", '{"op_code":2,"worker_id":"","study_id":0,"user_attr":{"spent":-1e300}}\n'),
    ("", '{"op_code":8,"worker_id":"","trial_id":7,"user_attr":{"why":[1]}}\n'),
    ("", '{"op_code":9,"worker_id":"","trial_id":7,"system_attr":{"completed_rung_0":"x"}}\n'),
    ('{"model":"c"}', '{"model":"../../x"}'),
    ('{"model":"c"}', '{"model":"c","run_dir":"x"}'),
    ('{"model":"c"}', '{"model":["c"]}'),
    ('\\"c\\"', '\\"+hydra.callbacks.x={_target_: os.mkdir}\\"'),
    ('"intermediate_value":1.0', '"intermediate_value":"x"'),
    ("CategoricalDistribution", "os.system"),
]


@pytest.mark.parametrize(("old", "new"), DAMAGES)
def test_a_damaged_journal_is_refused_in_one_line(halving, tmp_path, old, new):
    race = halving()
    race.try_models()
    race.study.enqueue_trial({"model": "c"})
    file = tmp_path / JOURNAL
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new) if old else f"{text}{new}\n")
    with pytest.raises(UserError, match=f"{file} is damaged; choose another run_dir"):
        halving()
    assert sorted(path.name for path in tmp_path.iterdir()) == [JOURNAL, "trials"]


def test_a_journal_that_is_no_file_is_refused(halving, tmp_path):
    os.mkfifo(tmp_path / JOURNAL)
    with pytest.raises(UserError, match="is not a regular file; expected an Optuna journal"):
        halving()


def test_a_journal_of_brackets_is_refused(halving, tmp_path):
    (tmp_path / JOURNAL).write_text("[" * 99_999 + "\n")
    with pytest.raises(UserError, match="must nest lists and objects at most 64"):
        halving()
